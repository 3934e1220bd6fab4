// SPDX-License-Identifier: MIT
// What every operation of one rank needs: the shared values, a way to report, a run as an operand.
#pragma once

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
  [[nodiscard]] static ColumnRun whole(ValueId value, const Column& at) {
    return {at.length, {{value, at.begin, at.stride, Coverage::whole(1)}}};
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

  SymbolicContext* context_;
  int tp_rank_;
};

}  // namespace tpsim::detail
