// SPDX-License-Identifier: MIT
// What a collective does to the tensors of a group whose calls match.
#pragma once

#include <vector>

#include <tpsim/comm/detail/group.hpp>

namespace tpsim::detail {

/// Carries out the collective of a complete group, in rank order. Inputs and outputs may be the
/// same tensors: every input is read before an output is written, or is the root's, which is
/// written by its own value. A rank without an output is elsewhere: its result is made there.
/// `scratch` is a list whose memory is reused.
inline void perform(Group& g, std::vector<const void*>& scratch) {
  const Call& first = g.arrivals.front().call;
  const std::size_t n = g.arrivals.size();
  const auto in = [&](std::size_t r) { return g.arrivals[r].call.in; };
  const auto out = [&](std::size_t r) { return g.arrivals[r].call.out; };
  const auto inputs = [&]() -> std::span<const void* const> {
    scratch.clear();
    for (std::size_t r = 0; r < n; ++r) scratch.push_back(in(r).tensor);
    return scratch;
  };
  std::size_t here = 0;  // the first that has one
  while (here < n && out(here).tensor == nullptr) ++here;
  if (here == n) return;
  const auto share = [&](const void* result, std::size_t from) {
    for (std::size_t r = from; r < n; ++r)
      if (out(r).tensor != nullptr) out(r).ops->assign(result, out(r).tensor);
  };
  switch (first.op) {
    case CollectiveOp::all_reduce:
      out(here).ops->reduce(first.reduction, inputs(), out(here).tensor);
      share(out(here).tensor, here + 1);
      break;
    case CollectiveOp::all_gather:
      out(here).ops->concat(inputs(), first.dim, out(here).tensor);
      share(out(here).tensor, here + 1);
      break;
    case CollectiveOp::gather: {
      const Buffer to = out(static_cast<std::size_t>(first.root));
      to.ops->concat(inputs(), first.dim, to.tensor);
      break;
    }
    case CollectiveOp::reduce_scatter: {
      // The first output holds the whole sum until the others have their parts.
      const Buffer whole = out(here);
      const Index part = g.arrivals.front().shape.dim(first.dim) / static_cast<Index>(n);
      whole.ops->reduce(first.reduction, inputs(), whole.tensor);
      for (std::size_t r = n; r-- > here;)
        if (out(r).tensor != nullptr)
          out(r).ops->slice(whole.tensor, first.dim, static_cast<Index>(r) * part, part,
                            out(r).tensor);
      break;
    }
    case CollectiveOp::broadcast:
      share(in(static_cast<std::size_t>(first.root)).tensor, here);
      break;
    case CollectiveOp::all_to_all: {
      // n copies and n parts at a time, rather than n * n parts at once.
      const Index part = g.arrivals.front().shape.dim(first.dim) / static_cast<Index>(n);
      std::vector<TensorOps::Owned> copies;
      for (std::size_t r = 0; r < n; ++r)
        copies.push_back(in(r).ops->make_slice(in(r).tensor, 0, 0, g.arrivals[r].shape.rows()));
      for (std::size_t to = here; to < n; ++to) {
        if (out(to).tensor == nullptr) continue;
        std::vector<TensorOps::Owned> parts;
        scratch.clear();
        for (const TensorOps::Owned& copy : copies) {
          parts.push_back(
              out(to).ops->make_slice(copy.get(), first.dim, static_cast<Index>(to) * part, part));
          scratch.push_back(parts.back().get());
        }
        out(to).ops->concat(scratch, first.dim, out(to).tensor);
      }
      break;
    }
    case CollectiveOp::barrier:
    case CollectiveOp::split:
      break;
  }
}

}  // namespace tpsim::detail
