// SPDX-License-Identifier: MIT
// A sum that loses precision on the wire: the same in every backend but the numeric one.
#pragma once

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/verify/faults/faulty_comm.hpp>

namespace tpsim::detail {

/// Rounds to bf16 what goes into a reduction, and the result of each hop. Bounds stay as if it did
/// not.
class Bf16Ops final : public TensorOps {
  using Tensor = EigenBackend<float>::Tensor;

 public:
  explicit Bf16Ops(const TensorOps& ops) : ops_(&ops) {}
  [[nodiscard]] Shape shape(const void* t) const override { return ops_->shape(t); }
  [[nodiscard]] DType dtype(const void* /*t*/) const override { return DType::bf16; }
  void reduce(Reduction op, std::span<const void* const> in, void* out) const override {
    Tensor total = rounded(in[0]);
    for (const void* each : in.subspan(1)) {
      const Tensor next = rounded(each);
      const void* both[] = {&total, &next};
      ops_->reduce(op, both, &total);
      total = rounded(&total);
    }
    *static_cast<Tensor*>(out) = std::move(total);
  }
  void concat(std::span<const void* const> in, int dim, void* out) const override {
    ops_->concat(in, dim, out);
  }
  void slice(const void* in, int dim, Index start, Index length, void* out) const override {
    ops_->slice(in, dim, start, length, out);
  }
  void assign(const void* in, void* out) const override { ops_->assign(in, out); }
  [[nodiscard]] Owned make_slice(const void* in, int dim, Index start,
                                 Index length) const override {
    return ops_->make_slice(in, dim, start, length);
  }
  [[nodiscard]] bool leaves_process() const override { return ops_->leaves_process(); }
  [[nodiscard]] std::vector<std::byte> pack(const void* in) const override {
    return ops_->pack(in);
  }
  void unpack(std::span<const std::byte> bytes, void* out) const override {
    ops_->unpack(bytes, out);
  }
  [[nodiscard]] Owned make_unpacked(std::span<const std::byte> bytes) const override {
    return ops_->make_unpacked(bytes);
  }

 private:
  [[nodiscard]] static Tensor rounded(const void* t) {
    Tensor out = *static_cast<const Tensor*>(t);
    eigen::round_to(DType::bf16, out.value.data(), out.value.size());
    return out;
  }
  const TensorOps* ops_;
};

class RoundedSum final : public PassOn {
 public:
  using PassOn::PassOn;

 protected:
  void run(const Call& call) override {
    using NumericOps = BackendOps<EigenBackend<float>>;
    if (call.op != CollectiveOp::all_reduce ||
        dynamic_cast<const NumericOps*>(call.in.ops) == nullptr)
      return PassOn::run(call);
    const Bf16Ops ops(*call.in.ops);
    Call other = call;
    other.in.ops = other.out.ops = &ops;
    PassOn::run(other);
  }
};

}  // namespace tpsim::detail
