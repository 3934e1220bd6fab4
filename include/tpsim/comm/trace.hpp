// SPDX-License-Identifier: MIT
// What a group of ranks communicated: one record per completed collective.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/comm/communicator.hpp>

namespace tpsim {

/// "tpsim/layers/linear.hpp:120" of a header below include/, else the file's name alone: a checkout
/// may be called tpsim, too.
[[nodiscard]] inline std::string where(const CallSite& at) {
  const std::string_view path = at.file_name();
  constexpr std::string_view folder = "include/";
  std::size_t begin = path.rfind("include/tpsim/");
  if (begin != std::string_view::npos)
    begin += folder.size();
  else if ((begin = path.rfind('/')) != std::string_view::npos)
    ++begin;
  else
    begin = 0;
  return std::string(path.substr(begin)) + ":" + std::to_string(at.line());
}

/// One collective of one group, completed. Independent of the rank that looks at it.
struct CollectiveRecord {
  CollectiveOp op = CollectiveOp::barrier;
  Reduction reduction = Reduction::sum;  ///< of all_reduce and reduce_scatter
  std::string group;                     ///< "world", "world/0", ...
  int group_size = 0;
  Shape shape;               ///< input of the group's rank 0 (of the root, in a broadcast)
  DType dtype = DType::f32;  ///< of that input
  Index bytes = 0;           ///< of that input; 0 for barrier and split
  Index array_bytes = 0;     ///< of the whole array: the inputs of a gather together, else `bytes`
  Index sequence = 0;        ///< how many collectives the group had completed before
  CallSite at;               ///< the caller on the group's rank 0
};

/// Records in the order of completion.
using Trace = std::vector<CollectiveRecord>;

/// Bytes that one rank sends when `size` ranks run `op` in a ring over an array of `array_bytes`;
/// rounded up where the array does not divide. A gather is the receiving root's count.
/// Source: nccl-tests doc/PERFORMANCE.md: all_reduce 2(n-1)/n, broadcast 1, others (n-1)/n.
[[nodiscard]] constexpr Index wire_bytes(CollectiveOp op, Index array_bytes, int size) {
  if (size <= 1 || op == CollectiveOp::barrier || op == CollectiveOp::split) return 0;
  if (op == CollectiveOp::broadcast) return array_bytes;
  // ceil(b (n-1) / n) = b - floor(b / n), which cannot overflow
  const Index b = op == CollectiveOp::all_reduce ? 2 * array_bytes : array_bytes;
  return b - b / size;
}
[[nodiscard]] constexpr Index wire_bytes(const CollectiveRecord& r) {
  return wire_bytes(r.op, r.array_bytes, r.group_size);
}
/// Sum over a trace. Right for one rank only if that rank belongs to every group in it.
[[nodiscard]] inline Index wire_bytes(const Trace& trace) {
  Index sum = 0;
  for (const CollectiveRecord& r : trace) sum += wire_bytes(r);
  return sum;
}

}  // namespace tpsim
