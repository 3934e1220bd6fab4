// SPDX-License-Identifier: MIT
// An activation without numbers: what each of its columns stands for.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/coverage.hpp>
#include <tpsim/backend/symbolic/value_table.hpp>

namespace tpsim {

/// Column i of the run holds column begin + i stride of `value`, of which `summed` has been
/// added up so far.
struct Term {
  ValueId value{};
  Index begin = 0, stride = 1;
  Coverage summed;
  std::uint64_t over = 0;  ///< key of the weight whose columns `summed` counts; 0 when whole

  /// Can `summed` be added to another term's? Partial sums over different columns (those of
  /// the first and those of the second weight of a chain) tell nothing together.
  [[nodiscard]] bool adds_to(const Term& t) const {
    return over == t.over || summed.uniform() || t.summed.uniform();
  }
};

/// Neighbouring columns, each the sum of the same terms, sorted by value.
struct ColumnRun {
  Index length = 0;
  std::vector<Term> terms;

  /// Columns [offset, offset + count).
  [[nodiscard]] ColumnRun part(Index offset, Index count) const {
    ColumnRun r{count, terms};
    for (Term& t : r.terms) {
      t.begin += offset * t.stride;
      if (count == 1) t.stride = 1;
    }
    return r;
  }
};

/// [tokens, columns].
struct SymbolicTensor {
  Runs tokens;                     ///< which tokens of the batch, in order
  std::vector<ColumnRun> columns;  ///< left to right, neighbours that continue each other merged
  int rank = -1;                   ///< the tp_rank that made it; -1 for the result of a collective

  [[nodiscard]] Index width() const {
    Index n = 0;
    for (const ColumnRun& run : columns) n += run.length;
    return n;
  }
  void append(ColumnRun run) {
    if (run.length <= 0) return;
    if (columns.empty() || !extend(columns.back(), run)) columns.push_back(std::move(run));
  }

 private:
  // A single column has no stride yet: it takes the one that its neighbour makes.
  static std::optional<Index> joint_stride(const ColumnRun& a, const Term& s, const ColumnRun& b,
                                           const Term& t) {
    const Index step = t.begin - (s.begin + (a.length - 1) * s.stride);
    if (step <= 0 || (a.length > 1 && step != s.stride) || (b.length > 1 && step != t.stride))
      return std::nullopt;
    return step;
  }
  static bool extend(ColumnRun& a, const ColumnRun& b) {
    if (a.terms.size() != b.terms.size()) return false;
    for (std::size_t i = 0; i < a.terms.size(); ++i) {
      const Term &s = a.terms[i], &t = b.terms[i];
      if (s.value != t.value || s.over != t.over || !joint_stride(a, s, b, t) ||
          !(s.summed == t.summed))
        return false;
    }
    for (std::size_t i = 0; i < a.terms.size(); ++i)
      a.terms[i].stride = *joint_stride(a, a.terms[i], b, b.terms[i]);
    a.length += b.length;
    return true;
  }
};

/// Columns [start, start + length) of x, cut where its runs end. @pre x has them
[[nodiscard]] inline std::vector<ColumnRun> columns_of(const SymbolicTensor& x, Index start,
                                                       Index length) {
  std::vector<ColumnRun> out;
  for (const ColumnRun& run : x.columns) {
    const Index skip = std::min(start, run.length);
    const Index take = std::min(length, run.length - skip);
    if (take > 0) out.push_back(run.part(skip, take));
    start -= skip;
    length -= take;
  }
  return out;
}

/// Calls visit(length, cursors) for the longest stretches in which no tensor starts a new run;
/// cursors[i] is (run, offset) in tensor i. @pre the tensors have one width
template <class Visit>
void for_each_stretch(std::span<const SymbolicTensor* const> tensors, Visit visit) {
  struct Cursor {
    const ColumnRun* run;
    Index offset;
  };
  std::vector<Cursor> at;
  std::vector<std::size_t> next(tensors.size(), 0);
  for (const SymbolicTensor* t : tensors) {
    if (t->columns.empty()) return;
    at.push_back({t->columns.data(), 0});
  }
  for (;;) {
    Index length = at[0].run->length - at[0].offset;
    for (const Cursor& c : at) length = std::min(length, c.run->length - c.offset);
    visit(length, std::as_const(at));
    for (std::size_t i = 0; i < at.size(); ++i) {
      at[i].offset += length;
      if (at[i].offset < at[i].run->length) continue;
      if (++next[i] == tensors[i]->columns.size()) return;
      at[i] = {&tensors[i]->columns[next[i]], 0};
    }
  }
}

/// What a run of columns stands for, taken as one value.
struct Column {
  ValueId value{};
  Index begin = 0, length = 0, stride = 1;
  bool complete = true;  ///< false: some part of a contraction has not been summed yet
  friend bool operator==(const Column&, const Column&) = default;
};

/// The run as one value: several terms stand for their sum, a term that counts c times for c times
/// its value. A partial run gives the value that it would be when whole.
[[nodiscard]] inline Column read_column(ValueTable& values, const ColumnRun& run) {
  if (run.terms.empty()) return {values.sum({}, run.length), 0, run.length, 1, true};
  const Term& first = run.terms.front();
  Column c{first.value, first.begin, run.length, run.length == 1 ? 1 : first.stride, true};
  for (const Term& t : run.terms)
    if (!values.node(t.value).known) return {t.value, t.begin, run.length, c.stride, true};
  if (run.terms.size() == 1 && first.summed.complete()) return c;
  for (const Term& t : run.terms)
    if (t.begin != first.begin || (run.length > 1 && t.stride != first.stride))
      return {values.unknown("a sum of different columns", run.length), 0, run.length, 1, true};
  std::vector<SumTerm> sum;
  std::vector<const Term*> partial;
  for (const Term& t : run.terms) {
    if (const std::optional<Rational> coef = t.summed.uniform())
      sum.push_back({t.value, *coef});
    else
      partial.push_back(&t);
  }
  // Partial products with one tensor, of several values, may cover it together.
  while (!partial.empty()) {
    std::vector<const Term*> others;
    std::vector<const Coverage*> covered;
    std::vector<std::pair<ValueId, Coverage>> parts;
    const Logical tensor = values.node(partial[0]->value).tensor;
    for (const Term* t : partial) {
      if (t != partial[0] && !(tensor && t->over == partial[0]->over &&
                               same_tensor(values.node(t->value).tensor, tensor))) {
        others.push_back(t);
        continue;
      }
      covered.push_back(&t->summed);
      parts.emplace_back(t->value, t->summed);
    }
    const std::optional<Rational> times = Coverage::sum(covered).uniform();
    if (times && *times != Rational(0) && parts.size() > 1) {
      for (auto& [value, summed] : parts) summed = summed.scaled({times->den(), times->num()});
      sum.push_back({values.joint(std::move(parts)), *times});
    } else {
      c.complete = false;
      for (const auto& [value, summed] : parts) sum.push_back({value, 1});
    }
    partial = std::move(others);
  }
  c.value = values.sum(std::move(sum), values.node(first.value).width);
  return c;
}

}  // namespace tpsim
