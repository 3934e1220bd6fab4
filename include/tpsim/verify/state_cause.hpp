// SPDX-License-Identifier: MIT
// From a rank's result and full()'s to the likely cause: what is missing, what counts too often.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include <tpsim/verify/cause.hpp>
#include <tpsim/verify/causes/value_cause.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim::detail {

constexpr const char* sum_leaves_out = "the sum leaves out a part of the columns";

/// Judges what the ranks return, and the groups in which they summed; nothing else.
class StateCause {
 public:
  StateCause(const Subject& subject, SymbolicContext& context,
             const RankRuns<SymbolicBackend>& runs, const std::vector<SymbolicTensor>& expected)
      : subject_(&subject), context_(&context), runs_(&runs), expected_(&expected) {
    for (const CollectiveRecord& r : runs.trace) {
      if (r.op != CollectiveOp::all_reduce && r.op != CollectiveOp::reduce_scatter) continue;
      summed_over_ = std::max(summed_over_, r.group_size);
    }
  }

  /// @pre rank r's output is there and differs from the expected one
  [[nodiscard]] Cause of(std::size_t r) const {
    const SymbolicTensor &have = *(*runs_).outputs[r], &wanted = (*expected_)[r];
    if (have.width() != wanted.width()) return width(have.width(), wanted.width());
    if (!(have.tokens == wanted.tokens))
      return {"the tokens are others, or in another order", "keep every token at its place"};
    for (const ColumnRun& run : have.columns)
      for (const Term& t : run.terms)
        if (!context_->values().node(t.value).known) return {};  // told where it came about
    if (const std::optional<Cause> c = looked_up(have)) return *c;
    if (const std::optional<Cause> c = chosen(have)) return *c;
    for (const ColumnRun& run : have.columns)
      for (const Term& t : run.terms)
        if (!t.summed.uniform() && !read_column(context_->values(), run).complete) return partial();
    if (const std::optional<Cause> c = counted(have, wanted)) return *c;
    if (const std::optional<Cause> c = inside(have, wanted)) return *c;
    return columns(r, have, wanted);
  }

 private:
  [[nodiscard]] Cause width(Index have, Index wanted) const {
    if (have > wanted && subject_->padded_to() == have)
      return {std::string("the columns of the padding reach the reader: a padded logit is ") +
                  (subject_->params[0].fill == Fill::zero ? "0" : "the last token's again"),
              "cut the gathered logits to the vocabulary"};
    if (wanted == have * subject_->tp)
      return {"the ranks' columns were not gathered", "all_gather them along the columns"};
    if (have == wanted * subject_->tp)
      return {"the weight was not cut, or its result was gathered too early",
              "each rank keeps its own columns"};
    return {};
  }

  // Ids that read rows of others, or that no rank looks up.
  [[nodiscard]] std::optional<Cause> looked_up(const SymbolicTensor& have) const {
    bool lookup = false, others = false, own = false;
    for (const ColumnRun& run : have.columns)
      for (const Term& t : run.terms) {
        const ValueNode& n = context_->values().node(t.value);
        if (n.op != ValueOp::lookup) continue;
        lookup = true;
        (n.label.empty() ? own : others) |= !n.label.empty() || t.summed.complete();
      }
    const std::string border = "an id is the rank's when first <= id < last";
    if (others && own)
      return Cause{"every id finds its row, and on other ranks another row that is not zeroed",
                   border + "; zero the rows of the others before the sum"};
    if (others) return Cause{"some ids read another row than their own", border};
    if (!lookup || summed_over_ < subject_->tp) return std::nullopt;
    return Cause{"some ids are looked up on no rank, or on several", border};
  }
  // A choice among other columns than all, or under other ids.
  [[nodiscard]] std::optional<Cause> chosen(const SymbolicTensor& have) const {
    for (const ColumnRun& run : have.columns)
      for (const Term& t : run.terms) {
        const ValueNode& n = context_->values().node(t.value);
        if (n.op != ValueOp::argmax || n.label.empty()) continue;
        const Index width = context_->values().node(n.a).width;
        bool padding = false, renamed = false;
        for (const Candidates::Run& among : context_->candidates(t.value).runs()) {
          padding = padding || among.zeros || among.id + among.length > width;
          renamed = renamed || among.id != among.column;
        }
        if (padding)
          return Cause{"the columns of the padding join the choice",
                       "cut them off on each rank before its greatest logit is taken"};
        if (renamed)
          return Cause{"a rank's ids start at 0: the start of its rows is not added",
                       "add the rank's first id to the column that it chose"};
        return Cause{"the choice is among the columns of some ranks only",
                     "exchange the ranks' greatest logits with their ids, then choose"};
      }
    return std::nullopt;
  }
  [[nodiscard]] Cause partial() const {
    const std::string over = std::to_string(subject_->tp);
    if (summed_over_ == 0)
      return {"no collective sums the partial products",
              "all_reduce over the whole tensor-parallel group before the value is used"};
    if (summed_over_ < subject_->tp)
      return {"the sum runs over too small a group: " + std::to_string(summed_over_) + " of " +
                  over + " ranks",
              "all_reduce over the whole tensor-parallel group"};
    return {sum_leaves_out, "sum what every rank computed"};
  }

  // How often each value counts, of columns that both sides hold at one place; nothing when the
  // columns themselves are others.
  using Counts = std::map<ValueId, std::pair<Rational, Rational>>;  // found, wanted
  [[nodiscard]] std::optional<Counts> counts(const SymbolicTensor& have,
                                             const SymbolicTensor& wanted) const {
    std::optional<Counts> first;
    bool comparable = true;
    const std::vector<const SymbolicTensor*> both{&have, &wanted};
    for_each_stretch(both, [&](Index n, const auto& at) {
      const ColumnRun a = at[0].run->part(at[0].offset, n), b = at[1].run->part(at[1].offset, n);
      Counts here;
      std::map<ValueId, Index> begin;
      const auto add = [&](const ColumnRun& run, bool found) {
        for (const Term& t : run.terms) {
          const std::optional<Rational> times = t.summed.uniform();
          comparable = comparable && times.has_value();
          if (!times) continue;
          auto& pair = here[t.value];
          (found ? pair.first : pair.second) = *times;
          comparable = comparable && begin.emplace(t.value, t.begin).first->second == t.begin;
        }
      };
      add(a, true);
      add(b, false);
      for (const auto& [value, pair] : here)
        if (!first && differs(pair)) first = here;
    });
    return comparable ? first : std::nullopt;
  }
  static bool differs(const std::pair<Rational, Rational>& p) { return !(p.first == p.second); }

  [[nodiscard]] std::optional<Cause> counted(const SymbolicTensor& have,
                                             const SymbolicTensor& wanted) const {
    const std::optional<Counts> all = counts(have, wanted);
    if (!all) return std::nullopt;
    bool same_factor = true;  // every value counts equally often, where it should count once
    const Rational factor = all->begin()->second.first;
    std::vector<ValueId> odd;
    for (const auto& [value, pair] : *all) {
      same_factor = same_factor && pair.second == Rational(1) && pair.first == factor;
      if (differs(pair)) odd.push_back(value);
    }
    // What counts too often was told by the sum that made it so.
    const Rational part(1, subject_->tp);
    const bool sums = summed_over_ > 0 && subject_->tp > 1;
    if (same_factor && sums && factor == part)
      return Cause{"the ranks' partial products were averaged", "sum them: no division by tp"};
    if (same_factor)
      return Cause{"the whole result counts " + factor.str() + " times", "count it once"};
    if (odd.size() != 1) return std::nullopt;
    const auto& [found, should] = all->at(odd[0]);
    const bool bias = context_->values().node(odd[0]).op == ValueOp::bias;
    const std::string name = context_->name(odd[0]);
    if (should == Rational(0))
      return Cause{name + " is added where full() adds nothing", "leave it out"};
    if (found == Rational(0) && bias) return missing_bias(odd[0], name);
    const std::string repair =
        bias && sums ? "add it on rank 0 alone before the sum, or on every rank after it"
                     : "add it once";
    if (sums && found == part && !bias && should == Rational(1))
      return Cause{"the ranks' partial products were averaged", "sum them: no division by tp"};
    if (sums && found == part)
      return Cause{name + " is divided by tp, but not added on every rank", repair};
    return Cause{name + " counts " + found.str() + " times", repair};
  }

  // Of the first columns whose value is another, as long as the columns are the same ones.
  [[nodiscard]] std::optional<Cause> inside(const SymbolicTensor& have,
                                            const SymbolicTensor& wanted) const {
    std::optional<std::pair<ValueId, ValueId>> first;
    const std::vector<const SymbolicTensor*> both{&have, &wanted};
    for_each_stretch(both, [&](Index n, const auto& at) {
      const Column a = read_column(context_->values(), at[0].run->part(at[0].offset, n));
      const Column b = read_column(context_->values(), at[1].run->part(at[1].offset, n));
      if (!first && a.complete && b.complete && a.value != b.value && a.begin == b.begin)
        first = {a.value, b.value};
    });
    if (!first) return std::nullopt;
    const ValueDifference d = difference(context_->values(), first->first, first->second);
    if (!d.have && context_->values().node(d.wanted->value).op == ValueOp::bias)
      return missing_bias(d.wanted->value, context_->name(d.wanted->value));
    return value_cause(*context_, first->first, first->second, subject_->tp);
  }

  // No rank has it, or some have.
  [[nodiscard]] Cause missing_bias(ValueId bias, const std::string& name) const {
    for (const auto& output : runs_->outputs) {
      if (!output) continue;
      for (const ColumnRun& run : output->columns)
        for (const Term& t : run.terms)
          if (t.value == bias)
            return {name + (summed_over_ > 0 ? " is added after the sum, on some ranks only"
                                             : " is added on some ranks only"),
                    summed_over_ > 0 ? "add it on every rank after the sum, or on one before it"
                                     : "add it on every rank"};
    }
    return {name + " is added on no rank",
            summed_over_ > 0 ? "add it on rank 0 alone, or after the sum" : "add it"};
  }

  // The right columns in another order, or those of another rank.
  [[nodiscard]] Cause columns(std::size_t r, const SymbolicTensor& have,
                              const SymbolicTensor& wanted) const {
    for (std::size_t s = 0; s < expected_->size(); ++s)
      if (s != r && !compare(*context_, have, (*expected_)[s]))
        return {"it returns what rank " + std::to_string(s) + " ought to", "rank r holds part r"};
    const auto places = [&](const SymbolicTensor& x) {
      std::map<ValueId, std::vector<Index>> out;
      for (const Column& c : canonical(*context_, x))
        for (Index i = 0; i < c.length; ++i) out[c.value].push_back(c.begin + i * c.stride);
      for (auto& [value, all] : out) std::sort(all.begin(), all.end());
      return out;
    };
    if (places(have) != places(wanted)) return {};
    for (const CollectiveRecord& record : runs_->trace) {
      if (record.op != CollectiveOp::all_gather && record.op != CollectiveOp::gather) continue;
      if (changes_of_value(have) > changes_of_value(wanted))
        return {"gathered columns are not regrouped: each rank's parts still lie side by side",
                "join the ranks' columns of one part, then those of the next"};
      return {"the gather joins the ranks' columns in another order", "join them in rank order"};
    }
    return {"the columns are right, in another order",
            "keep the order of the ranks and of the parts"};
  }

  [[nodiscard]] Index changes_of_value(const SymbolicTensor& x) const {
    const std::vector<Column> all = canonical(*context_, x);
    Index changes = 0;
    for (std::size_t i = 1; i < all.size(); ++i) changes += all[i].value != all[i - 1].value;
    return changes;
  }

  const Subject* subject_;
  SymbolicContext* context_;
  const RankRuns<SymbolicBackend>* runs_;
  const std::vector<SymbolicTensor>* expected_;
  int summed_over_ = 0;  ///< ranks of the largest group that summed
};

}  // namespace tpsim::detail
