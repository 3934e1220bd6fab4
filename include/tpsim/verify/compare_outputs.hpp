// SPDX-License-Identifier: MIT
// Element-by-element comparison of what the ranks return with full(), and with each other.
#pragma once

#include <tpsim/verify/cause.hpp>
#include <tpsim/verify/output_place.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim {

/// "k column 5 (head 0)" for column `column` of what a rank returns.
[[nodiscard]] inline std::string output_place(const Subject& subject, std::size_t rank,
                                              Index column) {
  return column_text(place_of(subject, rank, 0, column));
}

/// Adds to `result` the elements compared, and a finding for each rank that differs from full().
/// `at(tensor, row, column)` is the element; == decides. `cause(rank)` says why it may be.
template <class B, class At, class Why>
void compare_with_full(const Subject& subject, B& reference, const RankRuns<B>& runs,
                       const std::vector<typename B::Tensor>& full, At at, Why cause,
                       CheckResult& result) {
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    if (!runs.outputs[r]) continue;
    const typename B::Tensor wanted = expected_output(reference, subject, full, r);
    const Shape shape = reference.shape(wanted), have = reference.shape(*runs.outputs[r]);
    const std::string who = "rank " + std::to_string(r);
    if (have != shape) {
      result.findings.push_back({result.id, static_cast<int>(r), "output",
                                 who + " returns " + have.str() + ", wanted " + shape.str(), "",
                                 ""});
      continue;
    }
    Index wrong = 0, first = -1;
    for (Index c = 0; c < shape.cols(); ++c) {
      bool same = true;
      for (Index t = 0; t < shape.rows(); ++t)
        same = same && at(*runs.outputs[r], t, c) == at(wanted, t, c);
      if (same) continue;
      if (first < 0) first = c;
      ++wrong;
    }
    result.compared += shape.size();
    if (wrong == 0) continue;
    // The first few ranks tell enough.
    auto [why, repair] = result.findings.size() < 8 ? cause(r) : Cause{};
    result.findings.push_back({result.id, static_cast<int>(r), "output",
                               who + " differs from full() in " + std::to_string(wrong) + " of " +
                                   std::to_string(shape.cols()) + " columns, first at " +
                                   output_place(subject, r, first),
                               std::move(why), std::move(repair)});
  }
}

/// Columns that several ranks must return have to be equal on all of them, bit for bit.
template <class B, class At>
void compare_replicas(const Subject& subject, const RankRuns<B>& runs, At at, CheckResult& result) {
  const auto offset = [&](std::size_t part, std::size_t rank) {
    Index sum = 0;
    for (std::size_t k = 0; k < part; ++k) sum += subject.outputs[k].columns[rank].size();
    return sum;
  };
  for (std::size_t k = 0; k < subject.outputs.size(); ++k) {
    for (std::size_t r = 1; r < runs.outputs.size(); ++r) {
      std::size_t first = 0;  // the lowest rank with the same columns
      while (!(subject.outputs[k].columns[first] == subject.outputs[k].columns[r])) ++first;
      if (first == r || !runs.outputs[r] || !runs.outputs[first]) continue;
      const auto& a = *runs.outputs[first];
      const auto& b = *runs.outputs[r];
      const Index width = subject.outputs[k].columns[r].size(), from_a = offset(k, first),
                  from_b = offset(k, r);
      const Shape shape_a = runs.backends[first]->shape(a), shape_b = runs.backends[r]->shape(b);
      if (shape_a.cols() < from_a + width || shape_b.cols() < from_b + width ||
          shape_a.rows() != shape_b.rows())
        continue;
      Index wrong = 0, where = -1;
      for (Index c = 0; c < width; ++c)
        for (Index t = 0; t < shape_a.rows(); ++t)
          if (!(at(a, t, from_a + c) == at(b, t, from_b + c))) where = wrong++ == 0 ? c : where;
      result.compared += width * shape_a.rows();
      if (wrong > 0)
        result.findings.push_back({result.id, static_cast<int>(r), "output",
                                   "ranks " + std::to_string(first) + " and " + std::to_string(r) +
                                       " hold different values of the same output in " +
                                       std::to_string(wrong) + " elements, first at " +
                                       output_place(subject, r, from_b + where),
                                   "", ""});
    }
  }
}

}  // namespace tpsim
