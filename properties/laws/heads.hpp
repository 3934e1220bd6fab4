// SPDX-License-Identifier: MIT
// Law: every query head has its kv head on its own rank, also when ranks share kv heads.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Row by row on what the ranks hold, beside the check `heads`: the two must agree. Says nothing
/// about a layer without heads.
[[nodiscard]] inline Verdict every_q_head_has_its_kv_head(const Candidate& candidate,
                                                          const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.make(c.spec);
  Verdict out;
  if (!subject->heads) return out;
  const QkvShape& shape = *subject->heads;
  const StaticReading reading = read_statically(*subject);
  const Index tp = subject->tp, q_heads = shape.heads / tp,
              kv_heads = std::max<Index>(1, shape.kv_heads / tp);
  const auto broken = [&](const std::string& text) {
    if (out.because.empty()) out.because = text;
  };
  for (std::size_t p = 0; p < subject->params.size(); ++p)
    for (std::size_t r = 0; r < reading.held.size(); ++r) {
      const auto elements = held_elements(reading.held[r][p]);
      const std::string who = "rank " + std::to_string(r) + " " + subject->params[p].name;
      const Index k0 = q_heads * shape.head_dim, v0 = k0 + kv_heads * shape.head_dim;
      if (static_cast<Index>(elements.size()) != v0 + kv_heads * shape.v_head()) {
        broken(who + " has " + std::to_string(elements.size()) + " rows");
        continue;
      }
      const auto at = [&](Index row) { return elements[static_cast<std::size_t>(row)].at(0); };
      for (Index head = 0; head < q_heads; ++head) {
        const Element q = at(head * shape.head_dim);
        const Index model_head = q.row / shape.head_dim;
        const Index wanted = model_head * shape.kv_heads / shape.heads;  // it reads this one
        const Index local = head * kv_heads / q_heads;  // and the rank's code takes this one
        const auto meets = [&](Index row, Index size, std::size_t part) {
          for (Index i = 0; i < size; ++i) {
            ++out.compared;
            const Element e = at(row + i);
            if (e.tensor == subject->params[p].parts[part].tensor && e.row == wanted * size + i)
              continue;
            broken(who + ": q head " + std::to_string(model_head) + " meets " +
                   (e.tensor ? e.tensor->name + " head " + std::to_string(e.row / size)
                             : std::string("nothing")) +
                   ", wanted kv head " + std::to_string(wanted));
          }
        };
        for (Index i = 0; i < shape.head_dim; ++i)
          if (const Element e = at(head * shape.head_dim + i);
              e.tensor != subject->params[p].parts[0].tensor ||
              e.row != model_head * shape.head_dim + i)
            broken(who + ": q head " + std::to_string(model_head) + " is not whole");
        meets(k0 + local * shape.head_dim, shape.head_dim, 1);
        meets(v0 + local * shape.v_head(), shape.v_head(), 2);
      }
    }
  const Verdict check = verdict_of(reading.checks, {"heads"});
  if (out.because.empty() != check.because.empty())
    return {out.compared,
            out.because.empty() ? check.because : out.because + " (and the check heads missed it)"};
  return out;
}

}  // namespace tpsim::properties
