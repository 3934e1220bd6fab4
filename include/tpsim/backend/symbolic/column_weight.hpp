// SPDX-License-Identifier: MIT
// A weight of one dimension on every token: each column must meet its own entry.
#pragma once

#include <string>
#include <utility>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// mul_columns of one rank. Entry r of a weight as wide as the value belongs to column r; of a
/// narrower one, to every column c with c mod rows = r: a weight that all heads share.
class ColumnWeight : private OneCall {
 public:
  using OneCall::OneCall;

  /// Linear in x: a partial x stays partial. @throws LayoutError (partners) for sizes that differ
  [[nodiscard]] SymbolicTensor operator()(const SymbolicTensor& x, const SymbolicParam& w) const {
    require_columns_fit({x.tokens.size(), x.width()}, w.shape());
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    const std::vector<RowSource> sources = w.row_sources();
    for (Index start = 0; start < x.width(); start += w.shape().rows())
      for (const RowSource& source : sources) append(out, x, start + source.row, source, w);
    return out;
  }

 private:
  void append(SymbolicTensor& out, const SymbolicTensor& x, Index start, const RowSource& source,
              const SymbolicParam& w) const {
    if (!source.tensor) return out.append(unknown("unwritten rows of " + w.name(), source.rows));
    if (is_zeros(source.tensor)) return out.append({source.rows, {}});
    for (const Run& rows : source.src_rows) {
      Index done = 0;
      for (const ColumnRun& run : columns_of(x, start, rows.length)) {
        const Run met{rows.at(done), run.length, run.length == 1 ? 1 : rows.stride};
        out.append(scaled(run, source.tensor, met, w.scale()));
        done += run.length;
      }
      start += rows.length;
    }
  }
  [[nodiscard]] ColumnRun scaled(ColumnRun run, const Logical& tensor, const Run& rows,
                                 Rational factor) const {
    if (!known(run)) return run;
    for (Term& t : run.terms) {
      const Index width = values().node(t.value).width, period = tensor->shape.rows();
      const Index distance = rows.begin - t.begin;
      const bool shared = period < width && width % period == 0;
      const bool own = rows.stride == t.stride &&
                       (shared ? distance % period == 0 : width == period && distance == 0);
      if (!own && !context_->may_meet(tp_rank_, 'm', static_cast<std::uint64_t>(t.value),
                                      tensor->key, distance)) {
        report_apart(run.length, t, tensor, rows);
        return unknown("columns times entries of others", run.length);
      }
      const SumTerm v = values().multiple(t.value);
      t.value = values().intern({.op = ValueOp::scaled,
                                 .a = v.value,
                                 .tensor = tensor,
                                 .label = own ? std::string() : std::to_string(distance),
                                 .width = width});
      t.summed = t.summed.scaled(factor * v.coef);
    }
    sort_terms(run);
    return run;
  }
  void report_apart(Index length, const Term& t, const Logical& tensor, const Run& rows) const {
    Runs met, columns;
    met.append(rows);
    columns.append({t.begin, length, t.stride});
    report_once(
        "partners", tensor->name,
        "rows " + met.str() + " of " + tensor->name + " multiply columns " + columns.str() +
            " of " + context_->name(t.value),
        "the weight and the columns that it multiplies are cut by different rules",
        "cut the weight like the columns of x; a weight of one head is whole on every rank");
  }
};

}  // namespace tpsim::detail
