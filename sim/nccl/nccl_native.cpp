// SPDX-License-Identifier: MIT
// NCCL's own collectives on tensors of the CUDA backend.
#include "sim/nccl/nccl_tensors.hpp"

#include <tpsim/comm/trace.hpp>

namespace tpsim::nccl {

bool TensorGroup::natively(const Call& call, const Ops& ops) {
  switch (call.op) {
    case CollectiveOp::all_reduce:
    case CollectiveOp::reduce_scatter:
      natively_reduce(call, ops);
      return true;
    case CollectiveOp::all_to_all:
      natively_move(call, ops);
      return true;
    case CollectiveOp::all_gather:
    case CollectiveOp::gather: {
      // NCCL joins tensors of one size alone.
      const Shape s = static_cast<const DeviceTensor*>(call.in.tensor)->shape();
      const std::vector<Head> heads = told({0, s.rows(), s.cols(), 0}, text_of(call));
      for (const Head& h : heads)
        if (h.rows != heads[0].rows || h.cols != heads[0].cols) return false;
      natively_move(call, ops);
      return true;
    }
    default:
      return false;  // a broadcast is NCCL's in rank order, too
  }
}

void TensorGroup::natively_reduce(const Call& call, const Ops& ops) {
  const auto& x = *static_cast<const DeviceTensor*>(call.in.tensor);
  const auto op = call.reduction == Reduction::sum ? cuda::ReduceOp::sum : cuda::ReduceOp::max;
  const std::string what = text_of(call);
  const bool scatters = call.op == CollectiveOp::reduce_scatter;
  const Shape s = x.shape();
  DeviceTensor y(device_, scatters ? s.with(call.dim, s.dim(call.dim) / size) : s, x.type());
  if (scatters) {
    const DeviceTensor blocks = moved(ops, x, call.dim, 0);
    group_->reduce_scatter(blocks.view().data, y.view().data, y.shape().size(), x.type(), op, what);
  } else {
    group_->all_reduce(x.view().data, y.view().data, s.size(), x.type(), op, what);
  }
  *static_cast<DeviceTensor*>(call.out.tensor) = std::move(y);
}

void TensorGroup::natively_move(const Call& call, const Ops& ops) {
  const auto& x = *static_cast<const DeviceTensor*>(call.in.tensor);
  const std::string what = text_of(call);
  const Shape s = x.shape();
  const Index bytes = s.size() * cuda::bytes_of(x.type());
  const bool mine = call.op != CollectiveOp::gather || rank == call.root;
  // The ranks' blocks, one below the other.
  const auto put = [&](DeviceTensor all) {
    if (mine)
      *static_cast<DeviceTensor*>(call.out.tensor) =
          call.dim == 0 ? std::move(all) : moved(ops, all, 0, 1);
  };
  if (call.op == CollectiveOp::all_to_all) {
    const DeviceTensor blocks = moved(ops, x, call.dim, 0);
    DeviceTensor y(device_, blocks.shape(), x.type());
    group_->all_to_all(blocks.view().data, y.view().data, bytes / size, what);
    return put(std::move(y));
  }
  DeviceTensor all(device_, s.with(0, mine ? s.rows() * size : 0), x.type());
  if (call.op == CollectiveOp::all_gather)
    group_->all_gather(x.view().data, all.view().data, bytes, what);
  else
    group_->gather(x.view().data, all.view().data, bytes, call.root, what);
  put(std::move(all));
}

/// The size parts along `from`, joined along `to`.
DeviceTensor TensorGroup::moved(const Ops& ops, const DeviceTensor& x, int from, int to) {
  Tensors parts;
  std::vector<const void*> in;
  const Index n = x.shape().dim(from) / size;
  for (int r = 0; r < size; ++r) {
    parts.push_back(ops.make_slice(&x, from, r * n, n));
    in.push_back(parts.back().get());
  }
  DeviceTensor out(device_, Shape(0, 0), x.type());
  ops.concat(in, to, &out);
  return out;
}

}  // namespace tpsim::nccl
