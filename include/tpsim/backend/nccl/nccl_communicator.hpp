// SPDX-License-Identifier: MIT
// Collectives on tensors of the CUDA backend, one process a rank, by NCCL.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/backend/nccl/nccl_group.hpp>
#include <tpsim/comm/trace.hpp>

namespace tpsim {

/// rank_order: NCCL moves the ranks' tensors, and each rank sums, joins and cuts them as virtual
///   ranks do: the same bits, at the price of more bytes. Before each collective the ranks tell
///   each other what they call, so that calls which do not match are an error of all of them.
/// native: NCCL's own collectives; sums in its order, rounded to the tensors' type at every hop.
///   Ranks must agree: where they do not, NCCL's error or the time limit ends the wait.
enum class NcclMode : std::uint8_t { rank_order, native };

/// One process's end of a group. Results are on the rank's Device; the same Device must be that of
/// the backends whose tensors it is given. A barrier and a split move no tensors.
/// @throws LayoutError (collectives) for calls that do not match, or cannot be; cuda::Error as
///   nccl::Group, which a rank that ends leaves the others with
class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(cuda::Device device, nccl::Group group,
                            NcclMode mode = NcclMode::rank_order, std::string name = "world")
      : device_(std::move(device)), group_(std::move(group)), mode_(mode), name_(std::move(name)) {}

  [[nodiscard]] int rank() const override { return group_.rank(); }
  [[nodiscard]] int size() const override { return group_.size(); }
  [[nodiscard]] std::string_view group() const override { return name_; }
  /// What this group has completed, as VirtualRanks has it; shapes are this rank's.
  [[nodiscard]] const Trace& trace() const { return trace_; }

  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, Site at) override {
    const Call call{CollectiveOp::split, Reduction::sum, -1, -1, {}, {}, at};
    if (mode_ == NcclMode::rank_order) (void)tell(call, nullptr);
    nccl::Group part = group_.split(color, key);
    const std::string name =
        name_ + (++splits_ > 1 ? "#" + std::to_string(splits_) : "") + "/" + std::to_string(color);
    record(call, nullptr);
    if (part.is_none()) return nullptr;
    return std::make_unique<NcclCommunicator>(device_, std::move(part), mode_, name);
  }

 private:
  using Ops = BackendOps<CudaBackend>;
  /// What a rank tells the others of its call.
  struct Field {
    enum At : std::size_t { op, reduction, dim, root, type, rows, cols, sequence, count };
  };
  using Told = std::array<Index, Field::count>;

  void run(const Call& call) override {
    if (call.op == CollectiveOp::barrier) {
      (void)tell(call, nullptr);
      return record(call, nullptr);
    }
    const auto* ops = dynamic_cast<const Ops*>(call.in.ops);
    if (ops == nullptr)
      throw LayoutError("NCCL moves tensors of the CUDA backend",
                        {{"collectives", "this tensor is another backend's"}});
    const auto& x = *static_cast<const DeviceTensor*>(call.in.tensor);
    // Shape and type before it is written, when it is the output too.
    const CollectiveRecord done = record_of(call, &x);
    require_possible(call, x.shape());
    if (mode_ == NcclMode::rank_order)
      in_rank_order(call, *ops, x);
    else
      natively(call, *ops, x);
    trace_.push_back(done);
  }

  // --- rank order

  void in_rank_order(const Call& call, const Ops& ops, const DeviceTensor& x) {
    const std::vector<DeviceTensor> parts = gathered(tell(call, &x), x, call);
    std::vector<const void*> in;
    for (const DeviceTensor& p : parts) in.push_back(&p);
    void* const out = call.out.tensor;
    switch (call.op) {
      case CollectiveOp::all_reduce:
        return ops.reduce(call.reduction, in, out);
      case CollectiveOp::all_gather:
        return ops.concat(in, call.dim, out);
      case CollectiveOp::gather:
        if (rank() == call.root) ops.concat(in, call.dim, out);
        return;
      case CollectiveOp::reduce_scatter: {
        const Index part = x.shape().dim(call.dim) / size();
        DeviceTensor whole(device_, Shape(0, 0), x.type());
        ops.reduce(call.reduction, in, &whole);
        return ops.slice(&whole, call.dim, rank() * part, part, out);
      }
      case CollectiveOp::broadcast:
        return ops.assign(in[static_cast<std::size_t>(call.root)], out);
      case CollectiveOp::all_to_all:
        return join_slices(ops, in, call.dim, out);
      default:
        return;
    }
  }
  /// Everybody's part `rank()` along `dim`, joined.
  void join_slices(const Ops& ops, const std::vector<const void*>& in, int dim, void* out) const {
    std::vector<TensorOps::Owned> mine;
    std::vector<const void*> places;
    for (const void* p : in) {
      const Index part = ops.shape(p).dim(dim) / size();
      mine.push_back(ops.make_slice(p, dim, rank() * part, part));
      places.push_back(mine.back().get());
    }
    ops.concat(places, dim, out);
  }
  /// All ranks' tensors. They may differ in size: each is sent with the largest one's.
  [[nodiscard]] std::vector<DeviceTensor> gathered(const std::vector<Told>& told,
                                                   const DeviceTensor& x, const Call& call) {
    Index most = 0;
    for (const Told& t : told) most = std::max(most, t[Field::rows] * t[Field::cols]);
    const Index bytes = most * cuda::bytes_of(x.type());
    const cuda::Device::Buffer all = device_.allocate(bytes * size());
    cuda::Device::Buffer padded = device_.allocate(x.shape().size() < most ? bytes : 0);
    const void* from = x.view().data;
    if (padded) {
      const Index n = x.shape().size();
      device_.fill({padded.get(), 1, most, most, x.type()}, 0);
      device_.copy({x.view().data, 1, n, n, x.type()}, {padded.get(), 1, n, n, x.type()});
      from = padded.get();
    }
    if (most > 0) group_.all_gather(from, all.get(), bytes, text_of(call));
    std::vector<DeviceTensor> out;
    for (std::size_t r = 0; r < told.size(); ++r) {
      DeviceTensor& part =
          out.emplace_back(device_, Shape(told[r][Field::rows], told[r][Field::cols]), x.type());
      const Index n = part.shape().size();
      if (n > 0)
        device_.copy(block(all.get(), static_cast<Index>(r) * bytes, 1, n, x.type()),
                     {part.view().data, 1, n, n, x.type()});
    }
    return out;
  }
  /// What every rank calls. @throws LayoutError (collectives) when that is not one collective
  [[nodiscard]] std::vector<Told> tell(const Call& call, const DeviceTensor* x) {
    Told mine{static_cast<Index>(call.op),
              static_cast<Index>(call.reduction),
              call.dim,
              call.root,
              x == nullptr ? -1 : static_cast<Index>(x->type()),
              x == nullptr ? 0 : x->shape().rows(),
              x == nullptr ? 0 : x->shape().cols(),
              static_cast<Index>(trace_.size())};
    const Index bytes = static_cast<Index>(sizeof mine);
    const cuda::Device::Buffer sent = device_.array(mine.data(), bytes);
    const cuda::Device::Buffer all = device_.allocate(bytes * size());
    group_.all_gather(sent.get(), all.get(), bytes, text_of(call));
    std::vector<Told> told(static_cast<std::size_t>(size()));
    device_.download(block(all.get(), 0, 1, bytes * size() / 4, cuda::Type::f32), told.data());
    require_equal(told, call);
    return told;
  }
  void require_equal(const std::vector<Told>& told, const Call& call) const {
    const bool joins = call.op == CollectiveOp::all_gather || call.op == CollectiveOp::gather;
    std::vector<Violation> broken;
    for (std::size_t r = 1; r < told.size(); ++r)
      for (std::size_t f = 0; f < Field::count; ++f) {
        const bool may_differ = joins && (f == (call.dim == 0 ? Field::rows : Field::cols));
        if (told[r][f] == told[0][f] || may_differ) continue;
        broken.push_back({"collectives", "rank " + std::to_string(r) + " calls " +
                                             text_of(told[r]) + ", rank 0 " + text_of(told[0])});
        break;
      }
    if (!broken.empty())
      throw LayoutError("the ranks do not meet in one collective, at " + where(call.at) +
                            " on rank " + std::to_string(rank()),
                        std::move(broken),
                        "every rank of a group must call the same collectives in the same order");
  }

  // --- NCCL's own

  void natively(const Call& call, const Ops& ops, const DeviceTensor& x) {
    const std::string what = text_of(call);
    const Shape s = x.shape();
    const Index bytes = s.size() * cuda::bytes_of(x.type());
    const auto reduced =
        call.reduction == Reduction::sum ? cuda::ReduceOp::sum : cuda::ReduceOp::max;
    auto* const out = static_cast<DeviceTensor*>(call.out.tensor);
    switch (call.op) {
      case CollectiveOp::all_reduce: {
        DeviceTensor y(device_, s, x.type());
        group_.all_reduce(x.view().data, y.view().data, s.size(), x.type(), reduced, what);
        *out = std::move(y);
        return;
      }
      case CollectiveOp::all_gather:
      case CollectiveOp::gather: {
        const bool mine = call.op == CollectiveOp::all_gather || rank() == call.root;
        DeviceTensor all(device_, s.with(0, mine ? s.rows() * size() : 0), x.type());
        if (call.op == CollectiveOp::all_gather)
          group_.all_gather(x.view().data, all.view().data, bytes, what);
        else
          group_.gather(x.view().data, all.view().data, bytes, call.root, what);
        if (mine) *out = call.dim == 0 ? std::move(all) : side_by_side(ops, all);
        return;
      }
      case CollectiveOp::reduce_scatter: {
        const DeviceTensor blocks = below(ops, x, call.dim);
        DeviceTensor y(device_, s.with(call.dim, s.dim(call.dim) / size()), x.type());
        group_.reduce_scatter(blocks.view().data, y.view().data, y.shape().size(), x.type(),
                              reduced, what);
        *out = std::move(y);
        return;
      }
      case CollectiveOp::broadcast: {
        DeviceTensor y(device_, s, x.type());
        group_.broadcast(x.view().data, y.view().data, bytes, call.root, what);
        *out = std::move(y);
        return;
      }
      case CollectiveOp::all_to_all: {
        const DeviceTensor blocks = below(ops, x, call.dim);
        DeviceTensor y(device_, blocks.shape(), x.type());
        group_.all_to_all(blocks.view().data, y.view().data, bytes / size(), what);
        *out = call.dim == 0 ? std::move(y) : side_by_side(ops, y);
        return;
      }
      default:
        return;
    }
  }
  /// size() blocks one below the other, put side by side.
  [[nodiscard]] DeviceTensor side_by_side(const Ops& ops, const DeviceTensor& x) {
    return moved(ops, x, 0, 1);
  }
  /// The parts along `dim`, one below the other.
  [[nodiscard]] DeviceTensor below(const Ops& ops, const DeviceTensor& x, int dim) {
    return moved(ops, x, dim, 0);
  }
  [[nodiscard]] DeviceTensor moved(const Ops& ops, const DeviceTensor& x, int from, int to) {
    std::vector<TensorOps::Owned> parts;
    std::vector<const void*> in;
    const Index n = x.shape().dim(from) / size();
    for (int r = 0; r < size(); ++r) {
      parts.push_back(ops.make_slice(&x, from, r * n, n));
      in.push_back(parts.back().get());
    }
    DeviceTensor out(device_, Shape(0, 0), x.type());
    ops.concat(in, to, &out);
    return out;
  }

  // --- both

  /// A root and an extent that this group can have. @throws LayoutError (collectives)
  void require_possible(const Call& call, Shape s) const {
    const bool cuts =
        call.op == CollectiveOp::reduce_scatter || call.op == CollectiveOp::all_to_all;
    const bool rooted = call.op == CollectiveOp::gather || call.op == CollectiveOp::broadcast;
    std::vector<Violation> broken;
    if (rooted && (call.root < 0 || call.root >= size()))
      broken.push_back({"collectives", "there is no root " + std::to_string(call.root)});
    if (cuts && s.dim(call.dim) % size() != 0)
      broken.push_back({"collectives", s.str() + " does not divide by " + std::to_string(size()) +
                                           " in dimension " + std::to_string(call.dim)});
    if (!broken.empty()) throw LayoutError(text_of(call) + " cannot be", std::move(broken));
  }
  [[nodiscard]] static cuda::ConstMatrix block(const void* memory, Index skip_bytes, Index rows,
                                               Index cols, cuda::Type type) {
    return {static_cast<const unsigned char*>(memory) + skip_bytes, rows, cols, cols, type};
  }
  [[nodiscard]] std::string text_of(const Call& call) const {
    return std::string(name(call.op)) + " in " + name_ + " #" + std::to_string(trace_.size()) +
           " at " + where(call.at);
  }
  [[nodiscard]] static std::string text_of(const Told& t) {
    const auto called = static_cast<CollectiveOp>(t[Field::op]);
    std::string out(name(called));
    if (called == CollectiveOp::all_reduce || called == CollectiveOp::reduce_scatter)
      out += "(" + std::string(name(static_cast<Reduction>(t[Field::reduction]))) + ")";
    if (t[Field::type] >= 0)
      out += " " + Shape(t[Field::rows], t[Field::cols]).str() + " " +
             std::string(name(dtype_of(static_cast<cuda::Type>(t[Field::type]))));
    if (t[Field::dim] >= 0) out += " dim " + std::to_string(t[Field::dim]);
    if (t[Field::root] >= 0) out += " root " + std::to_string(t[Field::root]);
    return out + " #" + std::to_string(t[Field::sequence]);
  }
  [[nodiscard]] CollectiveRecord record_of(const Call& call, const DeviceTensor* x) const {
    CollectiveRecord r;
    r.op = call.op, r.reduction = call.reduction, r.group = name_, r.group_size = size();
    if (x != nullptr) {
      r.shape = x->shape(), r.dtype = dtype_of(x->type());
      r.bytes = r.array_bytes = x->shape().size() * bytes_of(r.dtype);
      if (call.op == CollectiveOp::all_gather || call.op == CollectiveOp::gather)
        r.array_bytes *= size();
    }
    r.sequence = static_cast<Index>(trace_.size()), r.at = call.at;
    return r;
  }
  void record(const Call& call, const DeviceTensor* x) { trace_.push_back(record_of(call, x)); }

  cuda::Device device_;
  nccl::Group group_;
  NcclMode mode_;
  std::string name_;
  int splits_ = 0;
  Trace trace_;
};

}  // namespace tpsim
