// SPDX-License-Identifier: MIT
// Rows of a table by token id: which ids read their own row, which another.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// A lookup of the ids 0, 1, ..., one token each: a statement about every id, whichever of them a
/// batch has. The ids that read their own row make one value, complete when it covers all of them;
/// ids that read one fixed row, or a row at a fixed distance, make values of their own.
class Lookup : private SymbolicRank {
 public:
  using SymbolicRank::SymbolicRank;

  /// @param rows  [id]: the row of `table` that is read for it
  /// @throws LayoutError (cover) for a table without rows
  [[nodiscard]] SymbolicTensor operator()(const SymbolicParam& table,
                                          const std::vector<Index>& rows) const {
    const auto ids = static_cast<Index>(rows.size());
    if (ids > 0) (void)clamped_row(rows[0], table.shape().rows());  // there must be some
    SymbolicTensor out{Runs::range(0, context_->lookup_tokens.value_or(ids)), {}, tp_rank_};
    const std::vector<RowSource> sources = table.row_sources();
    const RowSource* first = nullptr;  // of the checkpoint's: all have its columns
    for (const RowSource& s : sources) {
      if (is_zeros(s.tensor)) continue;
      if (first == nullptr) first = &s;
      if (!s.tensor || s.spliced || !same_tensor(s.tensor, first->tensor) ||
          !(s.src_cols == first->src_cols))
        return everything_unknown(std::move(out), table);
    }
    if (first == nullptr) {  // a rank of padding alone
      out.append({table.shape().cols(), {}});
      return out;
    }
    std::vector<Term> terms;
    for (const auto& [label, read] : values_read(sources, rows))
      terms.push_back({values().lookup(first->tensor, label), 0, 1, Coverage::of(read, ids)});
    std::sort(terms.begin(), terms.end(),
              [](const Term& l, const Term& r) { return l.value < r.value; });
    for (const Run& columns : first->src_cols) {
      ColumnRun run{columns.length, terms};
      for (Term& t : run.terms) t.begin = columns.begin, t.stride = columns.stride;
      out.append(std::move(run));
    }
    return out;
  }

 private:
  static constexpr Index padding = -1;

  [[nodiscard]] SymbolicTensor everything_unknown(SymbolicTensor out,
                                                  const SymbolicParam& table) const {
    out.append(unknown("rows of " + table.name() + " that were not loaded", table.shape().cols()));
    return out;
  }
  // Canonical row of a row of the parameter, or `padding`.
  static Index canonical(const std::vector<RowSource>& sources, Index row) {
    auto it = std::upper_bound(sources.begin(), sources.end(), row,
                               [](Index r, const RowSource& s) { return r < s.row; });
    --it;
    return is_zeros(it->tensor) ? padding : it->src_rows[row - it->row];
  }
  // Label of a value -> the ids that read it: "" their own row, else the longer of a stretch with
  // one row and a stretch at one distance.
  static std::map<std::string, Runs> values_read(const std::vector<RowSource>& sources,
                                                 const std::vector<Index>& rows) {
    const Index extent = sources.back().row + sources.back().rows;
    std::vector<Index> read;
    read.reserve(rows.size());
    for (const Index row : rows) read.push_back(canonical(sources, clamped_row(row, extent)));
    std::map<std::string, Runs> out;
    const auto ids = static_cast<Index>(read.size());
    const auto at = [&](Index id) { return read[static_cast<std::size_t>(id)]; };
    for (Index id = 0; id < ids;) {
      Index own = id, same = id + 1, apart = id + 1;
      while (own < ids && at(own) == own) ++own;
      if (own > id) {
        out[""].append({id, own - id, 1});
        id = own;
        continue;
      }
      while (same < ids && at(same) == at(id) && at(same) != same) ++same;
      while (apart < ids && at(apart) != padding && at(apart) - apart == at(id) - id) ++apart;
      const Index end = std::max(same, apart), distance = at(id) - id;
      const std::string label = same >= apart  ? "row " + std::to_string(at(id))
                                : distance > 0 ? "ids + " + std::to_string(distance)
                                               : "ids - " + std::to_string(-distance);
      if (at(id) != padding) out[label].append({id, end - id, 1});  // padding is zeros: no term
      id = end;
    }
    return out;
  }
};

}  // namespace tpsim::detail
