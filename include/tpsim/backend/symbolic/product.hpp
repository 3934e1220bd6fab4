// SPDX-License-Identifier: MIT
// x W^T: each column of x must meet its own column of W.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// The product of one rank. Where x holds all columns of its value the result is complete, else a
/// partial product that covers the columns held. A partial x meets whole weights alone: the product
/// is linear, so that its sum over the ranks may wait.
class Product : private SymbolicRank {
 public:
  using SymbolicRank::SymbolicRank;

  /// @pre x has as many columns as w
  [[nodiscard]] SymbolicTensor operator()(const SymbolicTensor& x, const SymbolicParam& w) const {
    const std::vector<RowSource> rows = w.row_sources();
    if (zero(x)) return {x.tokens, {{w.shape().rows(), {}}}, tp_rank_};
    if (const ColumnRun* partial = whole_width_partial(x); partial != nullptr && whole(rows))
      return term_by_term(x, *partial, w, rows);
    const std::string& name = label(w, rows);
    const std::vector<Operand> in = operands(x, name);
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (const RowSource& source : rows) append_rows(out, x, w, name, in, source);
    return out;
  }

 private:
  // Without columns (a rank with an empty shard) or with zeros alone.
  static bool zero(const SymbolicTensor& x) {
    return std::all_of(x.columns.begin(), x.columns.end(),
                       [](const ColumnRun& run) { return run.terms.empty(); });
  }
  // All columns of a value, in order, of which a sum over ranks is missing.
  [[nodiscard]] const ColumnRun* whole_width_partial(const SymbolicTensor& x) const {
    if (x.columns.size() != 1) return nullptr;
    const Column c = read_column(values(), x.columns[0]);
    const bool all = c.begin == 0 && c.stride == 1 && c.length == values().node(c.value).width;
    return all && !c.complete && known(c.value) ? x.columns.data() : nullptr;
  }
  // Are these the whole tensors, one after the other?
  static bool whole(const std::vector<RowSource>& rows) {
    return std::all_of(rows.begin(), rows.end(), [](const RowSource& s) {
      return s.tensor && s.src_rows.is_range(0, s.tensor->shape.rows()) &&
             s.src_cols.is_range(0, s.tensor->shape.cols());
    });
  }
  [[nodiscard]] SymbolicTensor term_by_term(const SymbolicTensor& x, const ColumnRun& partial,
                                            const SymbolicParam& w,
                                            const std::vector<RowSource>& rows) const {
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (const RowSource& source : rows) {
      ColumnRun run{source.rows, {}};
      for (const Term& t : partial.terms)
        run.terms.push_back(
            {values().linear(t.value, source.tensor), 0, 1, t.summed.scaled(w.scale()), t.over});
      std::sort(run.terms.begin(), run.terms.end(),
                [](const Term& l, const Term& r) { return l.value < r.value; });
      out.append(std::move(run));
    }
    return out;
  }
  // Columns of x that are columns `indices` of one value; of x joined from several there are more.
  struct Operand {
    ValueId value{};
    Runs indices;
  };

  static const std::string& label(const SymbolicParam& w, const std::vector<RowSource>& rows) {
    for (const RowSource& source : rows)
      if (source.tensor) return source.tensor->name;
    return w.name();
  }

  // Nothing when a column is unknown.
  [[nodiscard]] std::vector<Operand> operands(const SymbolicTensor& x,
                                              const std::string& weight) const {
    std::vector<Operand> in;
    for (const ColumnRun& run : x.columns) {
      const Column c = read_whole(run, "the product with " + weight);
      if (!known(c.value)) return {};
      if (in.empty() || in.back().value != c.value) in.push_back({c.value, {}});
      in.back().indices.append({c.begin, c.length, c.stride});
    }
    return in;
  }

  void append_rows(SymbolicTensor& out, const SymbolicTensor& x, const SymbolicParam& w,
                   const std::string& name, const std::vector<Operand>& in,
                   const RowSource& source) const {
    if (in.empty()) return out.append(unknown("a product of an unknown value", source.rows));
    if (is_zeros(source.tensor)) return out.append({source.rows, {}});
    if (source.spliced)
      report("partners", name,
             "rows " + Runs::range(source.row, source.row + source.rows).str() + " of " + w.name() +
                 " are put together from several rows or tensors",
             "copies went to wrong columns", "all columns of a row come from one row");
    if (!source.tensor) return out.append(unknown("unwritten rows of " + name, source.rows));
    const Index contracted = source.tensor->shape.cols();
    Operand all{in[0].value, {}};
    Index width = values().node(in[0].value).width;
    bool alike = true;  // values of one width have columns that can be told apart by their number
    for (const Operand& each : in) {
      all.indices.append(each.indices);
      alike = alike && values().node(each.value).width == width;
    }
    const Index at = Runs::first_difference(all.indices, source.src_cols);
    if (at >= 0 || contracted != width || !alike) {
      if (const auto terms = terms_apart(in, source, w.scale()))
        return append_rows_of(out, source, *terms);
      if (alike)
        report_misaligned(all, source, at, width);
      else
        report("partners", name,
               "the product with " + name +
                   " reads columns of several values: " + describe(*context_, x),
               "the columns of x were joined or cut at a wrong place",
               "multiply the columns of one value");
      return out.append(unknown("a product of different columns", source.rows));
    }
    append_rows_of(out, source, products(in, source.tensor, w.scale()));
  }
  static void append_rows_of(SymbolicTensor& out, const RowSource& source,
                             const std::vector<Term>& terms) {
    for (const Run& run : source.src_rows) {
      ColumnRun part{run.length, terms};
      for (Term& t : part.terms) t.begin = run.begin, t.stride = run.stride;
      out.append(std::move(part));
    }
  }
  // Several values side by side, or a part of one: each column meets the weight's column at the
  // distance at which full() lets it meet, or nothing is returned.
  [[nodiscard]] std::optional<std::vector<Term>> terms_apart(const std::vector<Operand>& in,
                                                             const RowSource& source,
                                                             Rational scale) const {
    const Index contracted = source.tensor->shape.cols();
    std::map<std::pair<ValueId, Index>, Runs> met;  // columns of the weight
    Index position = 0;
    for (const Operand& each : in)
      for (const Run& run : each.indices)
        for (Index i = 0; i < run.length; ++i, ++position) {
          const Index column = source.src_cols[position];
          met[{each.value, column - run.at(i)}].append({column, 1, 1});
        }
    std::vector<Term> terms;
    for (const auto& [key, columns] : met) {
      const auto& [value, shift] = key;
      if (!context_->may_meet(tp_rank_, 'l', static_cast<std::uint64_t>(value), source.tensor->key,
                              shift))
        return std::nullopt;
      terms.push_back({values().linear(value, source.tensor, shift), 0, 1,
                       Coverage::of(columns, contracted).scaled(scale), source.tensor->key});
    }
    std::sort(terms.begin(), terms.end(),
              [](const Term& l, const Term& r) { return l.value < r.value; });
    return terms;
  }
  // One term for each value, by value: how much of the contraction its columns are.
  [[nodiscard]] std::vector<Term> products(const std::vector<Operand>& in, const Logical& tensor,
                                           Rational scale) const {
    std::map<ValueId, Runs> columns;
    for (const Operand& each : in) columns[each.value].append(each.indices);
    std::vector<Term> terms;
    for (const auto& [value, indices] : columns) {
      const Index width = values().node(value).width;
      const Coverage summed =
          indices.is_range(0, width) ? Coverage::whole(width) : Coverage::of(indices, width);
      const SumTerm x = values().multiple(value);
      terms.push_back(
          {values().linear(x.value, tensor), 0, 1, summed.scaled(scale * x.coef), tensor->key});
    }
    std::sort(terms.begin(), terms.end(),
              [](const Term& l, const Term& r) { return l.value < r.value; });
    return terms;
  }
  void report_misaligned(const Operand& in, const RowSource& source, Index at, Index width) const {
    const std::string& name = source.tensor->name;
    std::string message = "x holds columns " + in.indices.str() + " of " +
                          context_->name(in.value) + ", " + name + " columns " +
                          source.src_cols.str();
    message += at >= 0 ? ": at position " + std::to_string(at) + " column " +
                             std::to_string(in.indices[at]) + " meets " +
                             std::to_string(source.src_cols[at])
                       : ": the value is " + std::to_string(width) + " wide, the weight " +
                             std::to_string(source.tensor->shape.cols());
    report("partners", name, std::move(message),
           "the input and the weight's columns are cut by different rules",
           "cut both at tp_rank * (columns / tp), in one order");
  }
};

}  // namespace tpsim::detail
