// SPDX-License-Identifier: MIT
// From where the ranks stood when none could go on to the one that is different.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <tpsim/comm/collective_mismatch.hpp>

namespace tpsim::detail {

/// @param reports    of every process of the job
/// @param processes  [tp_rank]: its process
[[nodiscard]] inline std::string mismatch_cause(const std::vector<RankReport>& reports,
                                                const std::vector<int>& processes) {
  // What each rank is about to do, in words; ranks that agree share an entry.
  std::map<std::string, std::vector<int>> by_call;
  for (std::size_t r = 0; r < processes.size(); ++r) {
    if (processes[r] < 0) return "a rank ended before it had built its layer";
    const RankReport& at = reports[static_cast<std::size_t>(processes[r])];
    by_call[at.returned ? "" : std::string(name(*at.op))].push_back(static_cast<int>(r));
  }
  if (by_call.size() == 1) return "the ranks call one operation, with other arguments";
  if (by_call.size() > 2) return "each rank calls another collective";
  const auto& [first, first_ranks] = *by_call.begin();
  const auto& [second, second_ranks] = *by_call.rbegin();
  // The smaller side is the odd one; of two equal sides neither is.
  const bool even = first_ranks.size() == second_ranks.size();
  const bool first_is_odd = first_ranks.size() < second_ranks.size();
  const std::vector<int>& odd = first_is_odd ? first_ranks : second_ranks;
  const std::string who =
      odd.size() == 1 ? "rank " + std::to_string(odd[0]) : std::to_string(odd.size()) + " ranks";
  const std::string verb = odd.size() == 1 ? " calls " : " call ";
  if (first.empty()) {  // some have returned
    if (even) return "some ranks call one " + second + " more than the others";
    return who + verb + "one " + second + (first_is_odd ? " less" : " more") + " than the others";
  }
  if (even) return "some ranks call " + first + " where the others call " + second;
  return who + verb + (first_is_odd ? first : second) + " where the others call " +
         (first_is_odd ? second : first);
}

}  // namespace tpsim::detail
