// SPDX-License-Identifier: MIT
// Who the other ranks are, and the collectives among them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// The element-wise operation of a reducing collective.
enum class Reduction : std::uint8_t { sum, max };
[[nodiscard]] constexpr std::string_view name(Reduction r) {
  return r == Reduction::sum ? "sum" : "max";
}

/// A place in the source: file and line of a std::source_location, or of one that another process
/// told.
class CallSite {
 public:
  constexpr CallSite() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): stands for it everywhere
  constexpr CallSite(const std::source_location& at) : file_(at.file_name()), line_(at.line()) {}
  /// @param file  lives as long as the program
  constexpr CallSite(const char* file, unsigned line) : file_(file), line_(line) {}
  [[nodiscard]] constexpr const char* file_name() const { return file_; }
  [[nodiscard]] constexpr unsigned line() const { return line_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};

/// What a communicator may do with a tensor that it knows nothing about. A backend supplies one
/// of these (backend/collectives.hpp); `void*` points to its tensor. `out` is a tensor of any
/// shape, replaced as a whole; it may be one of the inputs, so all of them are read before it is
/// written.
class TensorOps {
 public:
  /// Of one tensor, each array by itself.
  struct Summands {
    std::vector<float> singles;
    std::vector<double> doubles;
    [[nodiscard]] bool empty() const { return singles.empty() && doubles.empty(); }
  };
  /// A tensor that the communicator owns for a while.
  using Owned = std::unique_ptr<void, void (*)(void*)>;
  virtual ~TensorOps() = default;
  [[nodiscard]] virtual Shape shape(const void* tensor) const = 0;
  [[nodiscard]] virtual DType dtype(const void* tensor) const = 0;
  /// out = in[0] (+) in[1] (+) ..., in that order; all of one shape.
  virtual void reduce(Reduction op, std::span<const void* const> in, void* out) const = 0;
  /// out = in[0], in[1], ... joined along `dim`, in that order.
  virtual void concat(std::span<const void* const> in, int dim, void* out) const = 0;
  /// out = entries [start, start + length) of `in` along `dim`.
  virtual void slice(const void* in, int dim, Index start, Index length, void* out) const = 0;
  virtual void assign(const void* in, void* out) const = 0;
  /// The same slice as a new tensor.
  [[nodiscard]] virtual Owned make_slice(const void* in, int dim, Index start,
                                         Index length) const = 0;

  /// Which tensors these are; ranks of one collective have the same.
  [[nodiscard]] virtual std::string_view kind() const { return typeid(*this).name(); }
  /// May a tensor go to another process? The functions below are for those that may.
  [[nodiscard]] virtual bool leaves_process() const { return false; }
  /// All that unpack() needs to make the same tensor, bit for bit, in a process of the same
  /// program.
  [[nodiscard]] virtual std::vector<std::byte> pack(const void* /*in*/) const { stays(); }
  virtual void unpack(std::span<const std::byte> /*bytes*/, void* /*out*/) const { stays(); }
  [[nodiscard]] virtual Owned make_unpacked(std::span<const std::byte> /*bytes*/) const { stays(); }
  /// Numbers whose plain sums over the ranks, in any order, give the sum of their tensors; empty
  /// where a sum needs an order (it rounds on the way) or other arithmetic.
  [[nodiscard]] virtual Summands summands(const void* /*in*/) const { return {}; }
  /// The tensor `like` with these sums over `ranks` ranks in place of its numbers.
  virtual void from_sums(const void* /*like*/, const Summands& /*sums*/, int /*ranks*/,
                         void* /*out*/) const {
    stays();
  }

 private:
  [[noreturn]] void stays() const {
    throw std::logic_error("tensors of " + std::string(kind()) + " cannot leave their process");
  }
};

/// A tensor as a communicator sees it: opaque. `tensor` may be null (a gather's output on a rank
/// that is not the root).
struct Buffer {
  const TensorOps* ops = nullptr;
  void* tensor = nullptr;
};

enum class CollectiveOp : std::uint8_t {
  all_reduce,
  all_gather,
  gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  barrier,
  split
};
[[nodiscard]] constexpr std::string_view name(CollectiveOp op) {
  constexpr std::array<std::string_view, 8> names{"all_reduce",     "all_gather", "gather",
                                                  "reduce_scatter", "broadcast",  "all_to_all",
                                                  "barrier",        "split"};
  return names[static_cast<std::size_t>(op)];
}

/// One group of ranks that communicate, seen by one of them. Collectives are called by every rank
/// of the group, in the same order. Results are in rank order and the same for all schedules.
///
/// Shapes: `dim` 0 is tokens (rows), 1 is columns. all_gather and gather join the ranks' tensors
/// along `dim`; reduce_scatter and all_to_all need an extent along `dim` that divides by size().
/// `in` and `out` may be the same tensor.
class Communicator {
 public:
  using Site = CallSite;
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Name of the group in traces and findings: "world", "world/0" for colour 0 of a split.
  [[nodiscard]] virtual std::string_view group() const = 0;

  void all_reduce(Buffer in, Buffer out, Reduction op = Reduction::sum,
                  Site at = std::source_location::current()) {
    run({CollectiveOp::all_reduce, op, -1, -1, in, out, at});
  }
  void all_gather(Buffer in, Buffer out, int dim, Site at = std::source_location::current()) {
    run({CollectiveOp::all_gather, Reduction::sum, dim, -1, in, out, at});
  }
  /// Only `root` receives; `out.tensor` may be null elsewhere.
  void gather(Buffer in, Buffer out, int root, int dim, Site at = std::source_location::current()) {
    run({CollectiveOp::gather, Reduction::sum, dim, root, in, out, at});
  }
  /// Rank r receives part r of the reduced tensor, cut along `dim`.
  void reduce_scatter(Buffer in, Buffer out, int dim, Reduction op = Reduction::sum,
                      Site at = std::source_location::current()) {
    run({CollectiveOp::reduce_scatter, op, dim, -1, in, out, at});
  }
  /// Everybody receives the tensor of `root`.
  void broadcast(Buffer in, Buffer out, int root, Site at = std::source_location::current()) {
    run({CollectiveOp::broadcast, Reduction::sum, -1, root, in, out, at});
  }
  /// Part j of rank i's tensor, cut along `dim`, becomes part i of rank j's result.
  void all_to_all(Buffer in, Buffer out, int dim, Site at = std::source_location::current()) {
    run({CollectiveOp::all_to_all, Reduction::sum, dim, -1, in, out, at});
  }
  void barrier(Site at = std::source_location::current()) {
    run({CollectiveOp::barrier, Reduction::sum, -1, -1, {}, {}, at});
  }
  /// The ranks that pass the same `color` form a new group, ordered by (key, rank). A negative
  /// color joins none and receives null (MPI_Comm_split's MPI_UNDEFINED).
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(
      int color, int key, Site at = std::source_location::current()) = 0;

 protected:
  struct Call {
    CollectiveOp op;
    Reduction reduction;
    int dim;   ///< -1 where the operation has none
    int root;  ///< -1 where the operation has none
    Buffer in, out;
    Site at;
  };
  virtual void run(const Call& call) = 0;
  /// For communicators that wrap another one (tests, fault injection, tracing).
  static void forward_to(Communicator& other, const Call& call) { other.run(call); }
};

}  // namespace tpsim
