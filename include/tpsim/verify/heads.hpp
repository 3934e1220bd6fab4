// SPDX-License-Identifier: MIT
// Check `heads`: heads are whole, and every query head meets the kv head that it reads. Judged on
// what the ranks hold, not on where it was declared to be.
#pragma once

#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {
namespace detail {

/// Which head of which tensor the destination rows [row, row + size) hold, or nullopt when they
/// are not one whole head.
struct HeldHead {
  Logical tensor;
  Index head = 0;
};
[[nodiscard]] inline std::optional<HeldHead> held_head(const HeldParam& held, Index row,
                                                       Index size) {
  const std::vector<HeldRun> runs = held_rows(held, row, row + size);
  if (runs.size() != 1 || !runs[0].tensor) return std::nullopt;
  const Index first = runs[0].source[0];
  if (first % size != 0 || !runs[0].source.is_range(first, first + size)) return std::nullopt;
  return HeldHead{runs[0].tensor, first / size};
}
[[nodiscard]] inline std::string head_text(const HeldParam& held, Index row, Index size) {
  if (const auto head = held_head(held, row, size))
    return head->tensor->name + " head " + std::to_string(head->head);
  return describe(held_rows(held, row, row + size), "rows", 2);
}

}  // namespace detail

/// Applies when the subject has heads; its params then have the parts q, k, v.
/// q head h of the model reads kv head h / (heads / kv_heads). Source: Ainslie et al., GQA (2023);
/// vLLM QKVParallelLinear.
[[nodiscard]] inline CheckResult check_heads(const Subject& subject,
                                             const std::vector<HeldRank>& held) {
  CheckResult result{.id = "heads", .message = "the layer has no heads"};
  if (!subject.heads) return result;
  const QkvShape& shape = *subject.heads;
  const Index group = shape.heads / shape.kv_heads;
  for (std::size_t p = 0; p < subject.params.size(); ++p) {
    const DeclaredParam& param = subject.params[p];
    for (std::size_t r = 0; r < held.size(); ++r) {
      const HeldParam& have = held[r][p];
      const auto [q0, q_rows] = part_rows(param, 0, r);
      const auto [k0, k_rows] = part_rows(param, 1, r);
      const auto [v0, v_rows] = part_rows(param, 2, r);
      const Index heads = q_rows / shape.head_dim, kv_heads = k_rows / shape.head_dim;
      for (Index h = 0; h < heads; ++h) {
        // The rank's own code pairs its local query head h with its local kv head.
        const Index kv = h / (heads / kv_heads);
        result.compared += 2;
        const auto q = detail::held_head(have, q0 + h * shape.head_dim, shape.head_dim);
        const auto pair = [&](std::size_t part, Index row, Index size, const char* what) {
          const auto found = detail::held_head(have, row, size);
          const bool right = q && found && q->tensor == param.parts[0].tensor &&
                             found->tensor == param.parts[part].tensor &&
                             found->head == q->head / group;
          if (right) return;
          const std::string wanted =
              q && q->tensor == param.parts[0].tensor
                  ? param.parts[part].tensor->name + " head " + std::to_string(q->head / group)
                  : param.parts[part].tensor->name + " and a whole query head";
          result.findings.push_back(
              {"heads", static_cast<int>(r), param.name,
               "rank " + std::to_string(r) + " " + param.name + ": " +
                   detail::head_text(have, q0 + h * shape.head_dim, shape.head_dim) + " meets " +
                   detail::head_text(have, row, size) + " where " + wanted + " belongs (" + what +
                   ")",
               "query and kv heads are cut by different rules",
               "kv head of query head h is h / (heads / kv_heads), on the same rank"});
        };
        pair(1, k0 + kv * shape.head_dim, shape.head_dim, "k");
        pair(2, v0 + kv * shape.v_head(), shape.v_head(), "v");
      }
    }
  }
  result.message = result.findings.empty()
                       ? "every q head meets its kv head (" + std::to_string(group) + " q per kv)"
                       : result.findings.front().message;
  return result;
}

}  // namespace tpsim
