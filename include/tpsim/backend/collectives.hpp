// SPDX-License-Identifier: MIT
// Collectives as layers call them: on a backend's own tensors.
#pragma once

#include <optional>
#include <vector>

#include <tpsim/backend/backend.hpp>

namespace tpsim {

/// pack(x) and unpack(bytes): a tensor for another process of the same program, bit for bit.
/// Backends without them run on virtual ranks alone.
template <class B>
concept BackendHasPack =
    requires(B& b, const typename B::Tensor& x, std::span<const std::byte> bytes) {
      { b.pack(x) } -> std::same_as<std::vector<std::byte>>;
      { b.unpack(bytes) } -> std::same_as<typename B::Tensor>;
    };

/// Lets a communicator reduce, join and cut the tensors of one backend object.
template <Backend B>
class BackendOps final : public TensorOps {
  using Tensor = typename B::Tensor;

 public:
  explicit BackendOps(B& backend) : backend_(&backend) {}
  [[nodiscard]] Shape shape(const void* t) const override { return backend_->shape(in(t)); }
  [[nodiscard]] DType dtype(const void* t) const override { return backend_->dtype(in(t)); }
  void reduce(Reduction op, std::span<const void* const> parts, void* out) const override {
    // A backend may tell a sum over ranks from one that a rank makes of its own tensors.
    if constexpr (requires { backend_->reduce_ranks(op, typed(parts)); })
      to(out) = backend_->reduce_ranks(op, typed(parts));
    else
      to(out) = backend_->reduce(op, typed(parts));
  }
  void concat(std::span<const void* const> parts, int dim, void* out) const override {
    to(out) = backend_->concat(typed(parts), dim);
  }
  void slice(const void* t, int dim, Index start, Index length, void* out) const override {
    to(out) = backend_->slice(in(t), dim, start, length);
  }
  void assign(const void* t, void* out) const override {
    if (t != out) to(out) = backend_->slice(in(t), 0, 0, backend_->shape(in(t)).rows());
  }
  [[nodiscard]] Owned make_slice(const void* t, int dim, Index start, Index length) const override {
    return {new Tensor(backend_->slice(in(t), dim, start, length)),
            [](void* owned) { delete static_cast<Tensor*>(owned); }};
  }
  [[nodiscard]] bool leaves_process() const override { return BackendHasPack<B>; }
  [[nodiscard]] std::vector<std::byte> pack(const void* t) const override {
    if constexpr (BackendHasPack<B>)
      return backend_->pack(in(t));
    else
      return TensorOps::pack(t);
  }
  void unpack(std::span<const std::byte> bytes, void* out) const override {
    if constexpr (BackendHasPack<B>)
      to(out) = backend_->unpack(bytes);
    else
      TensorOps::unpack(bytes, out);
  }
  [[nodiscard]] Owned make_unpacked(std::span<const std::byte> bytes) const override {
    if constexpr (BackendHasPack<B>)
      return {new Tensor(backend_->unpack(bytes)),
              [](void* owned) { delete static_cast<Tensor*>(owned); }};
    else
      return TensorOps::make_unpacked(bytes);
  }
  [[nodiscard]] Summands summands(const void* t) const override {
    if constexpr (requires { backend_->summands(in(t)); })
      return backend_->summands(in(t));
    else
      return {};
  }
  void from_sums(const void* like, const Summands& sums, int ranks, void* out) const override {
    if constexpr (requires { backend_->from_sums(in(like), sums, ranks); })
      to(out) = backend_->from_sums(in(like), sums, ranks);
    else
      TensorOps::from_sums(like, sums, ranks, out);
  }
  [[nodiscard]] Buffer buffer(Tensor& t) const { return {this, &t}; }
  [[nodiscard]] Buffer none() const { return {this, nullptr}; }

 private:
  static const Tensor& in(const void* t) { return *static_cast<const Tensor*>(t); }
  static Tensor& to(void* t) { return *static_cast<Tensor*>(t); }
  static std::vector<const Tensor*> typed(std::span<const void* const> parts) {
    std::vector<const Tensor*> out;
    out.reserve(parts.size());
    for (const void* p : parts) out.push_back(static_cast<const Tensor*>(p));
    return out;
  }
  B* backend_;
};

/// The sum over all ranks, on every rank.
template <Backend B>
[[nodiscard]] typename B::Tensor all_reduce(
    B& backend, Communicator& comm, typename B::Tensor x,
    std::source_location at = std::source_location::current()) {
  const BackendOps<B> ops(backend);
  comm.all_reduce(ops.buffer(x), ops.buffer(x), Reduction::sum, at);
  return x;
}

/// All ranks' tensors joined along `dim` (1: columns) in rank order, on every rank.
template <Backend B>
[[nodiscard]] typename B::Tensor all_gather(
    B& backend, Communicator& comm, typename B::Tensor x, int dim = 1,
    std::source_location at = std::source_location::current()) {
  const BackendOps<B> ops(backend);
  comm.all_gather(ops.buffer(x), ops.buffer(x), dim, at);
  return x;
}

/// The same on `root` alone; nothing on the other ranks.
template <Backend B>
[[nodiscard]] std::optional<typename B::Tensor> gather(
    B& backend, Communicator& comm, typename B::Tensor x, int root, int dim = 1,
    std::source_location at = std::source_location::current()) {
  const BackendOps<B> ops(backend);
  const bool mine = comm.rank() == root;
  comm.gather(ops.buffer(x), mine ? ops.buffer(x) : ops.none(), root, dim, at);
  return mine ? std::optional(std::move(x)) : std::nullopt;
}

}  // namespace tpsim
