// SPDX-License-Identifier: MIT
// Where the ranks of several processes stand, seen from one that is told of every call: which of
// them may go on, and when none can.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/comm/detail/call_log.hpp>

namespace tpsim::detail {

/// Is told of a call before it happens, so that of a run in which every rank waits or has ended it
/// knows every call: a rank that has gone on from a collective did so after all of the group had
/// told of it, and the last rank that told has its message read before the board sees all wait.
class CallBoard {
 public:
  explicit CallBoard(int size)
      : logs_(static_cast<std::size_t>(size)), states_(logs_.size(), State::running) {
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    add_group("world", std::move(members));
  }

  /// Rank `r` waits. @return the ranks that may go on
  [[nodiscard]] std::vector<int> call(int r, LoggedCall c) {
    state(r) = c.meeting ? State::meeting : State::waiting;
    if (c.meeting) {
      met_.well = met_.well && c.said.well;
      if (r == 0) met_.value = c.said.value;
    }
    std::vector<int> free;
    if (!c.meeting) {
      Group& g = *groups_.at(c.group);
      g.arrivals.at(static_cast<std::size_t>(c.group_rank)) = arrival_of(c);
      ++g.arrived;
      if (g.complete()) free = finish(g);
    }
    log(r).calls.push_back(std::move(c));
    for (const int f : free) state(f) = State::running;
    return free.empty() ? met() : free;
  }
  /// Its function has ended. @return the ranks that may go on
  [[nodiscard]] std::vector<int> end(int r, RankEnd how) {
    log(r).end = how;
    state(r) = how == RankEnd::returned ? State::returned : State::failed;
    return met();
  }
  /// Can no rank go on, or have all ended?
  [[nodiscard]] bool still() const {
    for (const State s : states_)
      if (s == State::running) return false;
    return true;
  }
  /// Those that neither wait nor have ended.
  [[nodiscard]] std::vector<int> running() const {
    std::vector<int> out;
    for (std::size_t r = 0; r < states_.size(); ++r)
      if (states_[r] == State::running) out.push_back(static_cast<int>(r));
    return out;
  }
  /// Of the last meeting.
  [[nodiscard]] const Met& met_with() const { return met_; }
  [[nodiscard]] const std::vector<RankLog>& logs() const { return logs_; }

 private:
  enum class State : std::uint8_t { running, waiting, meeting, returned, failed };
  [[nodiscard]] State& state(int r) { return states_.at(static_cast<std::size_t>(r)); }
  [[nodiscard]] RankLog& log(int r) { return logs_.at(static_cast<std::size_t>(r)); }
  void add_group(const std::string& name, std::vector<int> members) {
    groups_[name] = std::make_unique<Group>(name, std::move(members));
  }

  /// All of the group are here: do they match?
  [[nodiscard]] std::vector<int> finish(Group& g) {
    for (const Arrival& a : g.arrivals)
      if (!match(g.arrivals.front(), a)) return {};
    if (!impossible(g).empty()) return {};
    if (g.arrivals.front().call.op == CollectiveOp::split)
      for (SplitPart& part : split_parts(g)) {
        std::vector<int> members;
        for (const int r : part.ranks) members.push_back(g.members[static_cast<std::size_t>(r)]);
        add_group(part.name, std::move(members));
      }
    ++g.sequence;
    g.arrived = 0;
    return g.members;
  }
  /// The ranks of a meeting, once no other is on its way to it.
  [[nodiscard]] std::vector<int> met() {
    std::vector<int> here;
    for (std::size_t r = 0; r < states_.size(); ++r) {
      if (states_[r] == State::meeting) here.push_back(static_cast<int>(r));
      if (states_[r] != State::meeting && states_[r] != State::returned) return {};
    }
    for (const int r : here) state(r) = State::running;
    return here;
  }

  std::map<std::string, std::unique_ptr<Group>> groups_;
  std::vector<RankLog> logs_;
  std::vector<State> states_;
  Met met_;
};

}  // namespace tpsim::detail
