// SPDX-License-Identifier: MIT
// A choice of the greatest column, among those of one rank and then among the ranks' own.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// A choice among some of the columns is another value than the choice among all: pairs of it and
/// of the rest make that. It is never a partial sum: no all_reduce completes it.
class Argmax : private OneCall {
 public:
  using OneCall::OneCall;

  /// x [tokens, n] -> [tokens, 2]: maximum, id. @throws LayoutError (names)
  [[nodiscard]] SymbolicTensor largest(const SymbolicTensor& x, Index first_id) const {
    require_ids_exact(first_id, x.width());
    Candidates among;
    std::optional<ValueId> value;
    Index id = first_id;
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (const ColumnRun& run : x.columns) {
      if (run.terms.empty()) {
        among.add({id, run.length, 0, true});
      } else {
        const Column c = read_whole(run, "argmax");
        if (value && known(c.value) && *value != c.value)
          report_once("partners", context_->name(c.value),
                      "columns of " + context_->name(*value) + " and of " +
                          context_->name(c.value) + " are compared",
                      "the choice is among columns of different values",
                      "choose among the columns of one result");
        if (!known(c.value) || (value && *value != c.value)) {
          out.append(unknown("the greatest of unknown columns", 2));
          return out;
        }
        value = c.value;
        if (c.stride == 1 || c.length == 1)
          among.add({id, c.length, c.begin});
        else
          for (Index i = 0; i < c.length; ++i) among.add({id + i, 1, c.begin + i * c.stride});
      }
      id += run.length;
    }
    for (const ValueOp op : {ValueOp::maximum, ValueOp::argmax})
      out.append({1, {{choice(op, value.value_or(zero()), among), 0, 1, Coverage::whole(1)}}});
    return out;
  }

  /// pairs [tokens, 2 k] -> [tokens, 1]. @throws LayoutError (divide)
  [[nodiscard]] SymbolicTensor best_of(const SymbolicTensor& pairs) const {
    const Index n = require_pairs({pairs.tokens.size(), pairs.width()});
    Candidates among;
    std::optional<ValueId> value;
    SymbolicTensor out{pairs.tokens, {}, tp_rank_};
    const auto nothing = [&] {
      out.append(unknown("a choice among unknown values", 1));
      return out;
    };
    for (Index k = 0; k < n; ++k) {
      const ColumnRun first = columns_of(pairs, 2 * k, 1).front(),
                      second = columns_of(pairs, 2 * k + 1, 1).front();
      if (!known(first) || !known(second)) return nothing();
      const std::optional<ValueId> of = pair(first, second);
      if (!of) return nothing();
      const Candidates& own = context_->candidates(read_column(values(), second).value);
      among.add(own);
      if (*of == zero()) continue;
      if (value && *value != *of) {
        report_once("partners", context_->name(*of),
                    "choices among " + context_->name(*value) + " and among " +
                        context_->name(*of) + " are compared",
                    "the ranks chose among columns of different results",
                    "compare the ranks' choices among one result");
        return nothing();
      }
      value = of;
    }
    out.append(
        {1, {{choice(ValueOp::argmax, value.value_or(zero()), among), 0, 1, Coverage::whole(1)}}});
    return out;
  }

 private:
  /// In place of the value when there is no column of any.
  [[nodiscard]] ValueId zero() const { return values().sum({}, 0); }
  [[nodiscard]] ValueId choice(ValueOp op, ValueId of, const Candidates& among) const {
    const bool all = among.are_all(values().node(of).width);
    const ValueId id = values().intern(
        {.op = op, .a = of, .label = all ? std::string() : among.str(), .width = 1});
    context_->note_candidates(id, among);
    return id;
  }
  /// What a maximum and the id of that very maximum were chosen among.
  [[nodiscard]] std::optional<ValueId> pair(const ColumnRun& first, const ColumnRun& second) const {
    const Column l = read_column(values(), first), r = read_column(values(), second);
    const ValueNode &greatest = values().node(l.value), &id = values().node(r.value);
    if (l.complete && r.complete && greatest.op == ValueOp::maximum && id.op == ValueOp::argmax &&
        greatest.a == id.a && greatest.label == id.label)
      return id.a;
    report_once("partners", context_->name(r.value),
                "best_of reads " + describe(*context_, first) + " beside " +
                    describe(*context_, second) + ": not a maximum and its id",
                "the pairs were summed, or joined in another order",
                "gather the pairs as they are, side by side");
    return std::nullopt;
  }
};

}  // namespace tpsim::detail
