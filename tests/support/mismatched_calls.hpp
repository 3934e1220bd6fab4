// SPDX-License-Identifier: MIT
// Calls that are no collective of a group, and what the finding says of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tests/support/plain_ops.hpp>

namespace tpsim::test {

inline const PlainOps ops;
class OtherOps final : public PlainOps {};
inline const OtherOps other_ops;

struct MismatchedCall {
  std::string difference;
  std::function<void(Communicator&, bool odd)> call;  ///< rank 1 of the group is odd
};

/// @param t  the ranks' tensors, which live as long as the calls: one for each rank
inline std::vector<MismatchedCall> mismatched_calls(std::vector<Plain>& t) {
  const auto n = static_cast<int>(t.size());
  const auto x = [&t](Communicator& c, Index rows = 2, Index cols = 3, DType type = DType::f64) {
    Plain& mine = t[static_cast<std::size_t>(c.rank())] = Plain(rows, cols);
    mine.type = type;
    return ops(mine);
  };
  const std::string size = std::to_string(n), above = std::to_string(n + 1),
                    odd_size = std::to_string(2 * n + 1);
  return {
      {"different operations, all_reduce on rank 0 and barrier on rank 1",
       [=](auto& c, bool odd) { odd ? c.barrier() : c.all_reduce(x(c), x(c)); }},
      {"different operations, all_gather on rank 0 and split on rank 1",
       [=](auto& c, bool odd) { odd ? (void)c.split(0, 0) : c.all_gather(x(c), x(c), 1); }},
      {"different reductions, sum on rank 0 and max on rank 1",
       [=](auto& c, bool odd) { c.all_reduce(x(c), x(c), odd ? Reduction::max : Reduction::sum); }},
      {"different shapes, [2, 3] on rank 0 and [3, 2] on rank 1",
       [=](auto& c, bool odd) { c.all_reduce(x(c, odd ? 3 : 2, odd ? 2 : 3), x(c)); }},
      {"different shapes, [2, 3] on rank 0 and [3, 3] on rank 1",
       [=](auto& c, bool odd) { c.all_gather(x(c, odd ? 3 : 2), x(c), 1); }},
      {"different shapes, [2, 3] on rank 0 and [2, 4] on rank 1",
       [=](auto& c, bool odd) { c.broadcast(x(c, 2, odd ? 4 : 3), x(c), 0); }},
      {"different dtypes, f64 on rank 0 and bf16 on rank 1",
       [=](auto& c, bool odd) { c.all_reduce(x(c, 2, 3, odd ? DType::bf16 : DType::f64), x(c)); }},
      {"different roots, 0 on rank 0 and 1 on rank 1",
       [=](auto& c, bool odd) { c.broadcast(x(c), x(c), odd ? 1 : 0); }},
      {"different dims, 0 on rank 0 and 1 on rank 1",
       [=](auto& c, bool odd) { c.all_gather(x(c), x(c), odd ? 1 : 0); }},
      {"different tensor types",
       [](auto& c, bool odd) {
         Plain y(2, 3);
         const Buffer b = odd ? other_ops(y) : ops(y);
         c.all_reduce(b, b);
       }},
      {"reduce_scatter of [2, " + odd_size + "]: " + odd_size +
           " entries along dim 1 do not divide over " + size + " ranks",
       [=](auto& c, bool) { c.reduce_scatter(x(c, 2, 2 * n + 1), x(c, 2, 2 * n + 1), 1); }},
      {"all_to_all of [" + above + ", 3]: " + above + " entries along dim 0 do not divide over " +
           size + " ranks",
       [=](auto& c, bool) { c.all_to_all(x(c, n + 1), x(c, n + 1), 0); }},
      {"gather has root " + size + " in a group of " + size,
       [=](auto& c, bool) { c.gather(x(c), x(c), n, 0); }},
      {"broadcast has root -1 in a group of " + size,
       [=](auto& c, bool) { c.broadcast(x(c), x(c), -1); }},
      {"all_gather has dim 2 of a tensor [2, 3]",
       [=](auto& c, bool) { c.all_gather(x(c), x(c), 2); }},
  };
}

}  // namespace tpsim::test
