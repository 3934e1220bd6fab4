// SPDX-License-Identifier: MIT
// What a sum over ranks does: adds the terms, and sees whether the parts belong together.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/placement.hpp>

namespace tpsim::detail {

/// "rank 3", "ranks 0-3", "ranks 0, 2 and 5"; of more than eight only the count.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return "rank " + std::to_string(ranks[0]);
  const int span = ranks.back() - ranks.front() + 1;
  if (span == static_cast<int>(ranks.size()) && ranks.size() > 2)
    return "ranks " + std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
  if (ranks.size() > 8) return std::to_string(ranks.size()) + " ranks";
  std::string out = "ranks " + std::to_string(ranks[0]);
  for (std::size_t i = 1; i < ranks.size(); ++i)
    out += (i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return out;
}

/// One stretch of columns of every part of a sum. Reports to the context; `result` is the sum, or
/// an unknown value when the parts cannot be added.
class SumOfParts {
 public:
  /// @param parts  a run of `length` columns of each rank;  @param ranks  whose they are
  SumOfParts(SymbolicContext& context, std::span<const ColumnRun> parts, std::span<const int> ranks)
      : context_(&context), parts_(parts), ranks_(ranks) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      for (const Term& t : parts[i].terms) shares_.push_back({&t, i});
    std::stable_sort(shares_.begin(), shares_.end(),
                     [](const Share& a, const Share& b) { return a.term->value < b.term->value; });
  }

  [[nodiscard]] ColumnRun result() {
    if (std::any_of(shares_.begin(), shares_.end(),
                    [&](const Share& s) { return !node(s.term->value).known; })) {
      count_known();
      return unknown("a sum of unknown values");
    }
    if (!same_columns()) return unknown("a sum of different columns");
    if (!one_sum()) return unknown("a sum of parts of different sums");
    doubled_ = all_whole();
    ColumnRun out{parts_[0].length, {}};
    bool complete = true;
    for (std::size_t i = 0, end = 0; i < shares_.size(); i = end) {
      std::vector<const Coverage*> summed;
      for (end = i; end < shares_.size() && value(end) == value(i); ++end)
        summed.push_back(&shares_[end].term->summed);
      Term total = *shares_[i].term;
      total.summed = Coverage::sum(summed);
      weaken(total, std::span(shares_).subspan(i, end - i));
      complete = complete && total.summed.uniform();
      if (!doubled_) check_count(total, std::span(shares_).subspan(i, end - i));
      if (!total.summed.segments().empty()) out.terms.push_back(std::move(total));
    }
    if (!complete && !same_values()) return unknown("a sum of different columns");
    if (doubled_) report_doubled(out);
    return out;
  }

 private:
  struct Share {
    const Term* term;
    std::size_t part;
  };
  [[nodiscard]] ValueId value(std::size_t share) const { return shares_[share].term->value; }
  [[nodiscard]] const ValueNode& node(ValueId id) const { return context_->values().node(id); }
  [[nodiscard]] std::string tensor_of(ValueId id) const {
    return node(id).tensor ? node(id).tensor->name : context_->name(id);
  }
  [[nodiscard]] std::string holds(std::size_t part) const {
    return "rank " + std::to_string(ranks_[part]) + " holds " + describe(*context_, parts_[part]);
  }
  [[nodiscard]] ColumnRun unknown(std::string label) {
    const Index n = parts_[0].length;
    return {n, {{context_->values().unknown(std::move(label), n), 0, 1, Coverage::whole(1)}}};
  }

  // A value must be summed with the same columns of itself.
  bool same_columns() {
    for (std::size_t i = 1; i < shares_.size(); ++i) {
      const Term &a = *shares_[i - 1].term, &b = *shares_[i].term;
      if (a.value != b.value || (a.begin == b.begin && a.stride == b.stride)) continue;
      context_->add({.check = "state",
                     .rank = -1,
                     .tensor = tensor_of(a.value),
                     .message = "the sum adds different columns: " + holds(shares_[i - 1].part) +
                                ", " + holds(shares_[i].part),
                     .cause = "an all_reduce of column shards, or shards in different orders",
                     .repair = "join column shards with all_gather; sum only partial products of "
                               "the same columns"});
      return false;
    }
    return true;
  }

  // Parts of one value must be parts of one sum.
  bool one_sum() {
    for (std::size_t i = 1; i < shares_.size(); ++i) {
      const Term &a = *shares_[i - 1].term, &b = *shares_[i].term;
      if (a.value != b.value || a.adds_to(b)) continue;
      context_->add({.check = "state",
                     .rank = -1,
                     .tensor = tensor_of(a.value),
                     .message = "the sum adds parts of different sums: " +
                                holds(shares_[i - 1].part) + ", " + holds(shares_[i].part),
                     .cause = "the ranks cut the layer at different weights",
                     .repair = "cut the same weights on every rank"});
      return false;
    }
    return true;
  }
  // Of a sum that is not whole, some value must be in every part. Ranks may add different whole
  // values: a bias or a residual on some of them, an expert's output each.
  bool same_values() {
    if (shares_.empty()) return true;
    for (std::size_t i = 0, end = 0; i < shares_.size(); i = end) {
      std::size_t ranks = 0;
      for (end = i; end < shares_.size() && value(end) == value(i); ++end)
        ranks += end == i || shares_[end].part != shares_[end - 1].part ? 1 : 0;
      if (ranks == parts_.size() || parts_of_one_product(*shares_[i].term)) return true;
    }
    std::size_t other = 0;
    while (other + 1 < parts_.size() && shares_agree(other)) ++other;
    context_->add({.check = "state",
                   .rank = -1,
                   .tensor = tensor_of(value(0)),
                   .message = "the sum adds different values: " + holds(0) + ", " + holds(other),
                   .cause = "the ranks computed different parts of the layer",
                   .repair = "sum only partial products of the same weight"});
    return false;
  }
  // Ranks with other values (query heads that meet their kv head at another distance) may each have
  // their own columns of one product: together once.
  [[nodiscard]] bool parts_of_one_product(const Term& t) const {
    const Logical& tensor = node(t.value).tensor;
    std::vector<bool> seen(parts_.size(), false);
    std::vector<const Coverage*> covered;
    for (const Share& s : shares_) {
      if (!tensor || !same_tensor(node(s.term->value).tensor, tensor)) continue;
      seen[s.part] = true;
      covered.push_back(&s.term->summed);
    }
    return std::find(seen.begin(), seen.end(), false) == seen.end() &&
           Coverage::sum(covered).complete();
  }
  [[nodiscard]] bool shares_agree(std::size_t part) const {
    for (const Term& a : parts_[0].terms)
      for (const Term& b : parts_[part].terms)
        if (a.value == b.value) return true;
    return false;
  }

  // Every part is the same whole value: there was nothing left to sum.
  [[nodiscard]] bool all_whole() const {
    if (parts_.size() < 2 || shares_.empty()) return false;
    for (const ColumnRun& part : parts_) {
      if (part.terms.size() != parts_[0].terms.size()) return false;
      for (std::size_t i = 0; i < part.terms.size(); ++i)
        if (part.terms[i].value != parts_[0].terms[i].value || !part.terms[i].summed.complete())
          return false;
    }
    return true;
  }
  void report_doubled(const ColumnRun& out) {
    const Term& t = out.terms.front();
    const std::string n = std::to_string(parts_.size());
    context_->add(
        {.check = "state",
         .rank = -1,
         .tensor = tensor_of(t.value),
         .message = describe(*context_, parts_[0]) + " is already complete before the sum over " +
                    rank_list({ranks_.begin(), ranks_.end()}) + ": it counts " + n + " times",
         .cause = "a value is summed that every rank has whole: its all_reduce is doubled, or it "
                  "was never cut",
         .repair = "sum once, and only partial products"});
  }

  // Beside unknown values, which were told where they came about, a bias can still count too often.
  void count_known() {
    for (std::size_t i = 0, end = 0; i < shares_.size(); i = end) {
      std::vector<const Coverage*> summed;
      for (end = i; end < shares_.size() && value(end) == value(i); ++end)
        summed.push_back(&shares_[end].term->summed);
      if (!node(value(i)).known) continue;
      Term total = *shares_[i].term;
      total.summed = Coverage::sum(summed);
      check_count(total, std::span(shares_).subspan(i, end - i));
    }
  }
  // Leaves out the rule that a test of the verifier names; in every other run it does nothing.
  void weaken(Term& total, std::span<const Share> shares) const {
    if (context_->weakening == Weakening::none) return;
    const bool contracted = total.summed.extent() > 1;
    if (context_->weakening == Weakening::accept_partial_plus_replicated && !contracted &&
        !doubled_ && shares.size() == parts_.size() && shares.front().term->summed.complete())
      total.summed = shares.front().term->summed;
    if (context_->weakening == Weakening::ignore_multiplicity && contracted)
      total.summed = total.summed.at_most(1);
  }
  // The sum may make a term whole, and not more than that.
  void check_count(const Term& total, std::span<const Share> shares) {
    const Coverage::Segment most = total.summed.most();
    if (!(most.coef > Rational(1))) return;
    std::vector<int> ranks;
    for (const Share& s : shares) {
      if (s.term->summed.most().coef > Rational(1)) return;  // told where it came about
      for (const Coverage::Segment& g : s.term->summed.segments())
        if (g.begin <= most.begin && most.begin < g.end) ranks.push_back(ranks_[s.part]);
    }
    const std::string who = rank_list(ranks), times = most.coef.str() + " times";
    const std::string adders = ranks.size() == parts_.size() ? "every rank adds" : who + " add";
    const std::string name = tensor_of(total.value);
    Finding f{
        .check = "state", .rank = -1, .tensor = name, .message = {}, .cause = {}, .repair = {}};
    if (node(total.value).op == ValueOp::bias) {
      f.message = name + " is added on " + who + ": the sum counts it " + times;
      f.cause = adders + " the whole bias before the all_reduce";
      f.repair = "add the bias on rank 0 alone, or after the all_reduce";
    } else if (node(total.value).op == ValueOp::lookup) {
      f.message = "ids [" + std::to_string(most.begin) + ", " + std::to_string(most.end) + ") of " +
                  name + " are looked up on " + who + ": the sum counts them " + times;
      f.cause = "the ranks' ranges of ids overlap";
      f.repair = "an id belongs to the rank that holds its row: first <= id < last";
    } else if (const ValueOp op = node(total.value).op;
               op == ValueOp::column_sum || op == ValueOp::square_sum) {
      const std::string counted = context_->name(node(total.value).a);
      std::vector<int> holders;
      for (const Share& s : shares)
        if (!s.term->summed.segments().empty()) holders.push_back(ranks_[s.part]);
      f.tensor = counted;
      f.message = "columns [" + std::to_string(most.begin) + ", " + std::to_string(most.end) +
                  ") of a group of " + counted + " are in the statistics of " + rank_list(holders) +
                  ": the sum counts them " + times;
      f.cause = "the ranks hold copies of the same heads";
      f.repair = "scale each rank's statistics by 1/copies before the all_reduce";
    } else if (total.summed.extent() == 1) {
      f.message =
          context_->name(total.value) + " is whole on " + who + ": the sum counts it " + times;
      f.cause = adders + " a residual before the all_reduce";
      f.repair = "add it after the all_reduce, or on rank 0 alone";
    } else {
      f.message = "columns [" + std::to_string(most.begin) + ", " + std::to_string(most.end) +
                  ") of " + name + " are on " + who + ": the sum counts them " + times;
      f.cause = "the ranks' shards overlap";
      f.repair = "each column of a row parallel weight belongs to one rank";
    }
    context_->add(std::move(f));
  }

  SymbolicContext* context_;
  std::span<const ColumnRun> parts_;
  std::span<const int> ranks_;
  std::vector<Share> shares_;  // of all parts, by value, then part
  bool doubled_ = false;
};

}  // namespace tpsim::detail
