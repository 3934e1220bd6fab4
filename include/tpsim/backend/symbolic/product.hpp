// SPDX-License-Identifier: MIT
// x W^T: each column of x must meet its own column of W.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// The product of one rank. Where x holds all columns of its value the result is complete, else a
/// partial product that covers the columns held.
class Product : private SymbolicRank {
 public:
  using SymbolicRank::SymbolicRank;

  /// @pre x has as many columns as w
  [[nodiscard]] SymbolicTensor operator()(const SymbolicTensor& x, const SymbolicParam& w) const {
    const std::vector<RowSource> rows = w.row_sources();
    const std::string& name = label(w, rows);
    const std::optional<Operand> in = operand(x, name);
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (const RowSource& source : rows) append_rows(out, w, name, in, source);
    return out;
  }

 private:
  // x as one operand of a product: columns `indices` of `value`.
  struct Operand {
    ValueId value{};
    Runs indices;
  };

  static const std::string& label(const SymbolicParam& w, const std::vector<RowSource>& rows) {
    for (const RowSource& source : rows)
      if (source.tensor) return source.tensor->name;
    return w.name();
  }

  [[nodiscard]] std::optional<Operand> operand(const SymbolicTensor& x,
                                               const std::string& weight) const {
    std::optional<Operand> in;
    for (const ColumnRun& run : x.columns) {
      const Column c = read_whole(run, "the product with " + weight);
      if (!known(c.value)) return std::nullopt;
      if (in && in->value != c.value) {
        report("partners", weight,
               "the product with " + weight +
                   " reads columns of several values: " + describe(*context_, x),
               "the columns of x were joined or cut at a wrong place",
               "multiply the columns of one value");
        return std::nullopt;
      }
      if (!in) in = Operand{c.value, {}};
      in->indices.append({c.begin, c.length, c.stride});
    }
    return in;
  }

  void append_rows(SymbolicTensor& out, const SymbolicParam& w, const std::string& name,
                   const std::optional<Operand>& in, const RowSource& source) const {
    if (!in) return out.append(unknown("a product of an unknown value", source.rows));
    if (source.spliced)
      report("partners", name,
             "rows " + Runs::range(source.row, source.row + source.rows).str() + " of " + w.name() +
                 " are put together from several rows or tensors",
             "copies went to wrong columns", "all columns of a row come from one row");
    if (!source.tensor) return out.append(unknown("unwritten rows of " + name, source.rows));
    const Index contracted = source.tensor->shape.cols();
    const Index width = values().node(in->value).width;
    const Index at = Runs::first_difference(in->indices, source.src_cols);
    if (at >= 0 || contracted != width) {
      report_misaligned(*in, source, at, width);
      return out.append(unknown("a product of different columns", source.rows));
    }
    const Coverage summed =
        (in->indices.is_range(0, width) ? Coverage::whole(width) : Coverage::of(in->indices, width))
            .scaled(w.scale());
    const ValueId value = values().linear(in->value, source.tensor);
    for (const Run& run : source.src_rows)
      out.append({run.length, {{value, run.begin, run.stride, summed}}});
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
