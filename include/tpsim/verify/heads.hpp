// SPDX-License-Identifier: MIT
// Check `heads`: heads are whole, and every query head meets the kv head that it reads. Judged on
// what the ranks hold, not on where it was declared to be.
#pragma once

#include <array>

#include <tpsim/verify/cause.hpp>
#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {

/// A part of a parameter, by index.
struct PartPlace {
  std::size_t param = 0, part = 0;
};
/// Where q, k and v lie: in one parameter, or each in its own.
struct HeadParts {
  PartPlace q, k, v;
};
/// Of the weights, then of the biases if there are any; empty for a subject without heads.
[[nodiscard]] inline std::vector<HeadParts> head_parts(const Subject& subject) {
  std::vector<HeadParts> out;
  if (!subject.heads) return out;
  for (const int rank : {2, 1}) {
    const auto find = [&](const char* label) {
      std::optional<PartPlace> place;
      for (std::size_t p = 0; p < subject.params.size(); ++p)
        for (std::size_t k = 0; k < subject.params[p].parts.size(); ++k)
          if (!place && subject.params[p].full_shape.rank() == rank &&
              subject.params[p].parts[k].label == label)
            place = PartPlace{p, k};
      return place;
    };
    if (const auto q = find("q"), k = find("k"), v = find("v"); q && k && v)
      out.push_back({*q, *k, *v});
  }
  return out;
}

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

/// Why query heads of a rank do not meet the kv heads at `at`: what is wrong with either.
[[nodiscard]] inline Cause pair_cause(const Subject& subject, const std::vector<HeldRank>& held,
                                      const PartPlace& at, const PartPlace& q, std::size_t rank) {
  for (const PartPlace& place : {at, q})
    if (const RanksView v{subject, held, place.param}; !v.is_right(place.part, rank))
      if (Cause cause = likely_cause(subject, held, place.param, place.part, rank);
          !cause.cause.empty())
        return cause;
  return {"query and kv heads are cut by different rules",
          "kv head of query head h is h / (heads / kv_heads), on the same rank"};
}

}  // namespace detail

/// q head h of the model reads kv head h / (heads / kv_heads). Source: Ainslie et al., GQA (2023);
/// vLLM QKVParallelLinear.
[[nodiscard]] inline CheckResult check_heads(const Subject& subject,
                                             const std::vector<HeldRank>& held) {
  CheckResult result{.id = "heads", .message = "the layer has no heads"};
  if (!subject.heads) return result;
  const QkvShape& shape = *subject.heads;
  const Index group = shape.heads / shape.kv_heads;
  const auto tensor = [&](const PartPlace& at) {
    return subject.params[at.param].parts[at.part].tensor;
  };
  for (const HeadParts& parts : head_parts(subject)) {
    const DeclaredParam& param = subject.params[parts.q.param];
    const auto rows_of = [&](const PartPlace& at, std::size_t r) {
      return part_rows(subject.params[at.param], at.part, r);
    };
    for (std::size_t r = 0; r < held.size(); ++r) {
      const HeldParam& q_held = held[r][parts.q.param];
      const auto [q0, q_rows] = rows_of(parts.q, r);
      const Index k0 = rows_of(parts.k, r).first, k_rows = rows_of(parts.k, r).second,
                  v0 = rows_of(parts.v, r).first;
      const Index heads = q_rows / shape.head_dim, kv_heads = k_rows / shape.head_dim;
      std::array<std::optional<Cause>, 2> causes;
      for (Index h = 0; h < heads; ++h) {
        // The rank's own code pairs its local query head h with its local kv head.
        const Index kv = h / (heads / kv_heads), q_row = q0 + h * shape.head_dim;
        result.compared += 2;
        const auto q = detail::held_head(q_held, q_row, shape.head_dim);
        const auto pair = [&](std::size_t which, const PartPlace& at, Index row, Index size) {
          const HeldParam& have = held[r][at.param];
          const auto found = detail::held_head(have, row, size);
          const bool right = q && found && q->tensor == tensor(parts.q) &&
                             found->tensor == tensor(at) && found->head == q->head / group;
          if (right) return;
          const std::string wanted =
              q && q->tensor == tensor(parts.q)
                  ? tensor(at)->name + " head " + std::to_string(q->head / group)
                  : tensor(at)->name + " and a whole query head";
          if (!causes[which]) causes[which] = detail::pair_cause(subject, held, at, parts.q, r);
          result.findings.push_back({"heads", static_cast<int>(r), param.name,
                                     "rank " + std::to_string(r) + " " + param.name + ": " +
                                         detail::head_text(q_held, q_row, shape.head_dim) +
                                         " meets " + detail::head_text(have, row, size) +
                                         " where " + wanted + " belongs (" +
                                         (which == 0 ? "k" : "v") + ")",
                                     causes[which]->cause, causes[which]->repair});
        };
        pair(0, parts.k, k0 + kv * shape.head_dim, shape.head_dim);
        pair(1, parts.v, v0 + kv * shape.v_head(), shape.v_head());
      }
    }
  }
  result.message = result.findings.empty()
                       ? "every q head meets its kv head (" + std::to_string(group) + " q per kv)"
                       : result.findings.front().message;
  return result;
}

}  // namespace tpsim
