// SPDX-License-Identifier: MIT
// What every operation of one rank needs: the shared values, a way to report, a run as an operand.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <tpsim/backend/symbolic/placement.hpp>

namespace tpsim::detail {

class SymbolicRank {
 public:
  SymbolicRank(SymbolicContext& context, int tp_rank) : context_(&context), tp_rank_(tp_rank) {}

 protected:
  [[nodiscard]] ValueTable& values() const { return context_->values(); }
  [[nodiscard]] bool known(ValueId id) const { return values().node(id).known; }
  [[nodiscard]] bool known(const ColumnRun& run) const {
    for (const Term& t : run.terms)
      if (!known(t.value)) return false;
    return true;
  }
  void report(std::string check, std::string tensor, std::string message, std::string cause,
              std::string repair) const {
    context_->add({.check = std::move(check),
                   .rank = tp_rank_,
                   .tensor = std::move(tensor),
                   .message = std::move(message),
                   .cause = std::move(cause),
                   .repair = std::move(repair)});
  }
  static void sort_terms(ColumnRun& run) {
    std::sort(run.terms.begin(), run.terms.end(), [](const Term& l, const Term& r) {
      return std::pair(l.value, l.begin) < std::pair(r.value, r.begin);
    });
  }
  [[nodiscard]] static ColumnRun whole(ValueId value, const Column& at, Rational times = 1) {
    return {at.length, {{value, at.begin, at.stride, Coverage::whole(1, times)}}};
  }
  [[nodiscard]] ColumnRun unknown(std::string label, Index length) const {
    const ValueId value = values().unknown(std::move(label), length);
    return {length, {{value, 0, 1, Coverage::whole(1)}}};
  }
  // The run as an operand of a function that does not commute with sums.
  [[nodiscard]] Column read_whole(const ColumnRun& run, std::string_view reader) const {
    Column c = read_column(values(), run);
    if (c.complete) return c;
    report("state", context_->name(c.value),
           std::string(reader) + " reads a partial value: " + describe(*context_, run),
           "an all_reduce is missing before " + std::string(reader),
           "sum the partial products over the ranks first");
    return {values().unknown(std::string(reader) + " of a partial value", c.length), 0, c.length, 1,
            true};
  }

  // Every run of x as such an operand; each partial run is told once.
  [[nodiscard]] SymbolicTensor whole_runs(const SymbolicTensor& x, std::string_view reader) const {
    SymbolicTensor out{x.tokens, {}, x.rank};
    for (const ColumnRun& run : x.columns) {
      if (read_column(values(), run).complete) {
        out.append(run);
        continue;
      }
      const Column c = read_whole(run, reader);
      out.append({c.length, {{c.value, 0, 1, Coverage::whole(1)}}});
    }
    return out;
  }

  SymbolicContext* context_;
  int tp_rank_;
};

/// One call of an operation: what is wrong with its first head is wrong with the others too, and
/// is told once.
class OneCall : protected SymbolicRank {
 protected:
  using SymbolicRank::SymbolicRank;

  void report_once(std::string check, std::string tensor, std::string message, std::string cause,
                   std::string repair) const {
    if (!std::exchange(told_, true))
      report(std::move(check), std::move(tensor), std::move(message), std::move(cause),
             std::move(repair));
  }

 private:
  mutable bool told_ = false;
};

}  // namespace tpsim::detail
