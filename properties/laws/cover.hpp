// SPDX-License-Identifier: MIT
// Law: the ranks' params together are the full tensor, every element as often as declared and in
// its declared place.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Counted element by element, beside the checks `cover`, `order` and `partners`, which reason with
/// runs and rectangles: the two must agree.
[[nodiscard]] inline Verdict params_partition_the_full_tensor(const Candidate& candidate,
                                                              const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  const StaticReading reading = read_statically(*subject);
  Verdict out;
  const auto broken = [&](const std::string& text) {
    if (out.because.empty()) out.because = text;
  };
  const auto place = [](const Logical& tensor, Index row, Index col) {
    return tensor ? tensor->name + " row " + std::to_string(row) + " column " + std::to_string(col)
                  : std::string("nothing");
  };
  for (std::size_t p = 0; p < subject->params.size(); ++p) {
    const DeclaredParam& param = subject->params[p];
    std::vector<std::vector<Index>> copies(param.parts.size());
    for (std::size_t k = 0; k < param.parts.size(); ++k)
      copies[k].resize(static_cast<std::size_t>(param.parts[k].tensor->shape.size()));
    for (std::size_t r = 0; r < reading.held.size(); ++r) {
      const HeldParam& held = reading.held[r][p];
      const std::string who = "rank " + std::to_string(r) + " " + param.name;
      const auto elements = held_elements(held);
      if (!held.overwritten.empty()) broken(who + ": rows were written twice");
      Index next = 0;
      for (std::size_t k = 0; k < param.parts.size(); ++k) {
        const DeclaredPart& part = param.parts[k];
        for (Index i = 0; i < part.rows[r].size(); ++i, ++next) {
          if (next >= held.shape.rows() || part.cols[r].size() != held.shape.cols()) {
            broken(who + " is " + held.shape.str());
            continue;
          }
          for (Index j = 0; j < held.shape.cols(); ++j) {
            const Element& e =
                elements[static_cast<std::size_t>(next)][static_cast<std::size_t>(j)];
            const Index row = part.rows[r][i], col = part.cols[r][j];
            ++out.compared;
            if (e.tensor != part.tensor || e.row != row || e.col != col)
              broken(who + ": holds " + place(e.tensor, e.row, e.col) + ", wanted " +
                     place(part.tensor, row, col));
            if (e.tensor == part.tensor)
              ++copies[k][static_cast<std::size_t>(e.row * part.tensor->shape.cols() + e.col)];
          }
        }
      }
      const Index padding = param.padding_of(r);
      const bool last = param.fill == Fill::last;
      if (!(held.zeros == Runs::range(next, last ? next : next + padding)))
        broken(who + ": rows " + Runs::range(next, next + padding).str() +
               (last ? " are zeros" : " are no zeros"));
      for (Index i = next; last && i < std::min(next + padding, held.shape.rows()); ++i)
        for (Index j = 0; j < held.shape.cols(); ++j, ++out.compared) {
          const Element& e = elements[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
          const Logical& tensor = param.parts.back().tensor;
          if (e.tensor != tensor || e.row != tensor->shape.rows() - 1 || e.col != j)
            broken(who + ": padding holds " + place(e.tensor, e.row, e.col));
        }
      if (next + padding != held.shape.rows()) broken(who + " is " + held.shape.str());
    }
    // Every element on the same number of ranks: one, or as many as share it.
    for (std::size_t k = 0; k < param.parts.size(); ++k)
      for (const Index n : copies[k])
        if (n == 0 || n != copies[k][0])
          broken(param.parts[k].tensor->name + ": an element is on " + std::to_string(n) +
                 " ranks, the first on " + std::to_string(copies[k][0]));
  }
  const Verdict checks = verdict_of(reading.checks, {"cover", "order", "partners"});
  if (out.because.empty() != checks.because.empty())
    return {out.compared, out.because.empty()
                              ? checks.because
                              : out.because + " (and the checks cover and order missed it)"};
  return out;
}

}  // namespace tpsim::properties
