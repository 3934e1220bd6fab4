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
    for (const Share& s : shares_)
      if (!context_->values().node(s.term->value).known) return unknown("a sum of unknown values");
    if (!same_columns() || !same_values()) return unknown("a sum of different columns");
    doubled_ = all_whole();
    ColumnRun out{parts_[0].length, {}};
    for (std::size_t i = 0, end = 0; i < shares_.size(); i = end) {
      std::vector<const Coverage*> summed;
      for (end = i; end < shares_.size() && value(end) == value(i); ++end)
        summed.push_back(&shares_[end].term->summed);
      Term total = *shares_[i].term;
      total.summed = Coverage::sum(summed);
      if (!doubled_) check_count(total, std::span(shares_).subspan(i, end - i));
      if (!total.summed.segments().empty()) out.terms.push_back(std::move(total));
    }
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

  // Some value must be in every part: a bias or a residual may be on some ranks alone.
  bool same_values() {
    if (shares_.empty()) return true;
    for (std::size_t i = 0, end = 0; i < shares_.size(); i = end) {
      std::size_t ranks = 0;
      for (end = i; end < shares_.size() && value(end) == value(i); ++end)
        ranks += end == i || shares_[end].part != shares_[end - 1].part ? 1 : 0;
      if (ranks == parts_.size()) return true;
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
         .cause = "the all_reduce is doubled, or the weight was not cut",
         .repair = "sum once, and only partial products"});
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
    const std::string name = tensor_of(total.value);
    Finding f{
        .check = "state", .rank = -1, .tensor = name, .message = {}, .cause = {}, .repair = {}};
    if (node(total.value).op == ValueOp::bias) {
      f.message = "bias " + name + " is added on " + who + ": the sum counts it " + times;
      f.cause = "every rank adds the whole bias before the all_reduce";
      f.repair = "add the bias on rank 0 alone, or after the all_reduce";
    } else if (total.summed.extent() == 1) {
      f.message =
          context_->name(total.value) + " is whole on " + who + ": the sum counts it " + times;
      f.cause = "a residual was added before the all_reduce on every rank";
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
