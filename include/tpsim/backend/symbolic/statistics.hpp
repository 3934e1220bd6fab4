// SPDX-License-Identifier: MIT
// Norms: sums over groups of columns, whole or a rank's share, and what is divided by them.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/symbolic/numbers.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// The statistics of one rank. A rank that holds every column of a group has the group's sum; one
/// that holds some of them has a partial sum, as after a row parallel product: coverage counts the
/// group's columns.
class Statistics : private OneCall {
 public:
  using OneCall::OneCall;

  /// column_sum or square_sum. @throws LayoutError (heads) for columns that end inside a group
  [[nodiscard]] SymbolicTensor sums(ValueOp op, const SymbolicTensor& x, Index group) const {
    const Index groups = statistics_groups(x.width(), group), held = x.width() / groups;
    const SymbolicTensor terms = whole_runs(x, reader(op));
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (Index i = 0; i < groups; ++i)
      out.append(sum(op, columns_of(terms, i * held, held), group));
    return out;
  }
  /// x - sums / count. @throws LayoutError (heads) for statistics of another shape
  [[nodiscard]] SymbolicTensor centered(const SymbolicTensor& x, const SymbolicTensor& sums,
                                        Index count) const {
    return divided({.op = ValueOp::centered, .n = count}, x, sums, "centered");
  }
  /// x / sqrt(squares / count + eps). @throws LayoutError (heads)
  [[nodiscard]] SymbolicTensor rms_normalized(const SymbolicTensor& x,
                                              const SymbolicTensor& squares, Index count,
                                              double eps) const {
    context_->cost(tp_rank_).oracle_calls += x.tokens.size() * squares.width();
    return divided({.op = ValueOp::rms_norm, .label = exact_text(eps), .n = count}, x, squares,
                   "rms_normalized");
  }

 private:
  static std::string_view reader(ValueOp op) {
    return op == ValueOp::column_sum ? "column_sums" : "square_sums";
  }

  // One column: the sum over `held`, columns of one group of one value.
  [[nodiscard]] ColumnRun sum(ValueOp op, const std::vector<ColumnRun>& held, Index group) const {
    std::optional<Column> first;
    Runs columns;  // of the group
    for (const ColumnRun& run : held) {
      if (run.terms.empty()) continue;  // zeros
      const Column c = read_column(values(), run);
      if (!known(c.value)) return unknown("statistics of an unknown value", 1);
      if (!first) first = c;
      const Index last = c.begin + (c.length - 1) * c.stride;
      if (c.value != first->value || c.begin / group != first->begin / group ||
          last / group != first->begin / group) {
        report_straddle(op, held, group);
        return unknown("statistics of several groups", 1);
      }
      columns.append({c.begin % group, c.length, c.stride});
    }
    if (!first) return {1, {}};
    const SumTerm v = values().multiple(first->value);
    const Rational times = op == ValueOp::square_sum ? v.coef * v.coef : v.coef;
    const Index width = values().node(v.value).width, at = first->begin / group;
    const ValueId total =
        values().intern({.op = op, .a = v.value, .n = group, .width = (width + group - 1) / group});
    const std::uint64_t over = mix(static_cast<std::uint64_t>(total) + 1);
    return {1, {{total, at, 1, Coverage::of(columns, group).scaled(times), over}}};
  }
  void report_straddle(ValueOp op, const std::vector<ColumnRun>& held, Index group) const {
    SymbolicTensor x{{}, held, tp_rank_};
    const std::string name = context_->name(read_column(values(), held.front()).value);
    report_once("heads", name,
                std::string(reader(op)) + " over groups of " + std::to_string(group) +
                    " columns reads columns of several: " + describe(*context_, x),
                "the columns are cut inside a group of the norm, or joined from several",
                "cut at whole groups, or give every rank columns of one group alone");
  }

  // Every column of x with the statistics of its group.
  [[nodiscard]] SymbolicTensor divided(const ValueNode& node, const SymbolicTensor& x,
                                       const SymbolicTensor& statistics,
                                       std::string_view reader) const {
    const Index held = require_statistics_fit({x.tokens.size(), x.width()},
                                              {statistics.tokens.size(), statistics.width()});
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    if (!(x.tokens == statistics.tokens)) {
      report("state", "",
             "the statistics are of tokens " + statistics.tokens.str() + ", x holds tokens " +
                 x.tokens.str(),
             "the ranks hold different tokens", "take the statistics of the same tokens");
      out.append(unknown("statistics of other tokens", x.width()));
      return out;
    }
    const SymbolicTensor terms = whole_runs(x, reader);
    Index i = 0;
    for (const ColumnRun& sums : statistics.columns) {
      const bool complete = summed(sums, columns_of(x, i * held, held * sums.length), reader);
      for (Index j = 0; j < sums.length; ++j, ++i)
        for (const ColumnRun& run : columns_of(terms, i * held, held))
          out.append(complete ? divided(node, run, sums.part(j, 1))
                              : unknown("a norm by partial statistics", run.length));
    }
    return out;
  }
  // Nothing is missing from these statistics; of zeros there are none.
  [[nodiscard]] bool summed(const ColumnRun& sums, const std::vector<ColumnRun>& x,
                            std::string_view reader) const {
    const bool zeros =
        std::all_of(x.begin(), x.end(), [](const ColumnRun& run) { return run.terms.empty(); });
    if (sums.terms.empty() ? zeros : read_column(values(), sums).complete) return true;
    const std::string of = context_->name(read_column(values(), x.front()).value);
    report("state", of,
           "the statistics of " + of +
               " are partial: " + (sums.terms.empty() ? "zeros" : describe(*context_, sums)),
           "an all_reduce of the statistics is missing before " + std::string(reader),
           "sum the ranks' statistics first");
    return false;
  }
  [[nodiscard]] ColumnRun divided(ValueNode node, const ColumnRun& run, const ColumnRun& s) const {
    // 0 - S / n is not zero, 0 / sqrt(S / n + eps) is
    if (run.terms.empty() && (s.terms.empty() || node.op == ValueOp::rms_norm)) return run;
    const Column x = read_column(values(), run), group = read_column(values(), s);
    if (!known(x.value) || !known(group.value))
      return unknown("a norm of unknown values", run.length);
    const ValueNode &v = values().node(x.value), &total = values().node(group.value);
    const bool own =
        total.a == x.value && (total.op == ValueOp::column_sum || total.op == ValueOp::square_sum);
    const Index size = own ? total.n : (v.width + total.width - 1) / total.width;
    const Index last = x.begin + (x.length - 1) * x.stride;
    if (x.begin / size != group.begin || last / size != group.begin) {
      const Index begin = group.begin * size;
      Runs columns;
      columns.append({x.begin, x.length, x.stride});
      report_once("partners", context_->name(x.value),
                  "columns " + columns.str() + " of " + context_->name(x.value) +
                      " meet the statistics of columns " + Runs::range(begin, begin + size).str(),
                  "the statistics come from another group of columns, or of another width",
                  "divide each group by its own statistics");
      return unknown("a norm by the statistics of other columns", run.length);
    }
    node.a = x.value;
    node.b = group.value;
    node.width = v.width;
    return whole(values().intern(std::move(node)), x);
  }
};

}  // namespace tpsim::detail
