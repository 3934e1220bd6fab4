// SPDX-License-Identifier: MIT
// Law: every query head has its kv head on its own rank, also when ranks share kv heads.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Row by row on what the ranks hold, beside the check `heads`: the two must agree. Says nothing
/// about a layer without heads.
[[nodiscard]] inline Verdict every_q_head_has_its_kv_head(const Candidate& candidate,
                                                          const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  Verdict out;
  if (!subject->heads) return out;
  const QkvShape& shape = *subject->heads;
  const StaticReading reading = read_statically(*subject);
  const Index tp = subject->tp, q_heads = shape.heads / tp,
              kv_heads = std::max<Index>(1, shape.kv_heads / tp);
  const auto broken = [&](const std::string& text) {
    if (out.because.empty()) out.because = text;
  };
  for (const HeadParts& parts : head_parts(*subject))
    for (std::size_t r = 0; r < reading.held.size(); ++r) {
      const std::string who =
          "rank " + std::to_string(r) + " " + subject->params[parts.q.param].name;
      // Rows of one part, as many as its heads make.
      const auto rows_of = [&](const PartPlace& place, Index rows) {
        const auto all = held_elements(reading.held[r][place.param]);
        const auto first =
            static_cast<std::size_t>(part_rows(subject->params[place.param], place.part, r).first);
        std::vector<Element> column;
        for (std::size_t i = first;
             i < all.size() && column.size() < static_cast<std::size_t>(rows); ++i)
          column.push_back(all[i].at(0));
        if (static_cast<Index>(column.size()) != rows)
          broken(who + " has " + std::to_string(all.size()) + " rows");
        column.resize(static_cast<std::size_t>(rows));
        return column;
      };
      const auto tensor = [&](const PartPlace& place) {
        return subject->params[place.param].parts[place.part].tensor;
      };
      const std::vector<Element> q_rows = rows_of(parts.q, q_heads * shape.head_dim);
      for (Index head = 0; head < q_heads; ++head) {
        const Element& q = q_rows[static_cast<std::size_t>(head * shape.head_dim)];
        const Index model_head = q.row / shape.head_dim;
        const Index wanted = model_head * shape.kv_heads / shape.heads;  // it reads this one
        const Index local = head * kv_heads / q_heads;  // and the rank's code takes this one
        const auto meets = [&](const PartPlace& place, Index size) {
          const std::vector<Element> rows = rows_of(place, kv_heads * size);
          for (Index i = 0; i < size; ++i) {
            ++out.compared;
            const Element& e = rows[static_cast<std::size_t>(local * size + i)];
            if (e.tensor == tensor(place) && e.row == wanted * size + i) continue;
            broken(who + ": q head " + std::to_string(model_head) + " meets " +
                   (e.tensor ? e.tensor->name + " head " + std::to_string(e.row / size)
                             : std::string("nothing")) +
                   ", wanted kv head " + std::to_string(wanted));
          }
        };
        for (Index i = 0; i < shape.head_dim; ++i)
          if (const Element& e = q_rows[static_cast<std::size_t>(head * shape.head_dim + i)];
              e.tensor != tensor(parts.q) || e.row != model_head * shape.head_dim + i)
            broken(who + ": q head " + std::to_string(model_head) + " is not whole");
        meets(parts.k, shape.head_dim);
        meets(parts.v, shape.v_head());
      }
    }
  const Verdict check = verdict_of(reading.checks, {"heads"});
  if (out.because.empty() != check.because.empty())
    return {out.compared,
            out.because.empty() ? check.because : out.because + " (and the check heads missed it)"};
  return out;
}

}  // namespace tpsim::properties
