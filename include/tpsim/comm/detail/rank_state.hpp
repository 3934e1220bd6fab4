// SPDX-License-Identifier: MIT
// Where each rank of a world stands, and what is told of it when no rank can go on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tpsim/comm/collective_mismatch.hpp>
#include <tpsim/comm/detail/fiber.hpp>
#include <tpsim/comm/detail/group.hpp>

namespace tpsim::detail {

class RankCommunicator;

/// One rank of a world, between its turns.
struct RankState {
  std::unique_ptr<RankCommunicator> comm;
  std::unique_ptr<Fiber> fiber;  ///< while its function runs
  std::shared_ptr<Group> group;  ///< of its last collective
  int group_rank = -1;
  Index collectives = 0;  ///< completed
  Index sequence = 0;     ///< of the last, inside `group`
  bool waiting = false;
  bool meeting = false;
  bool returned = false;
  bool refused = false;  ///< skipped a collective while an exception was in flight
};

/// Where rank r of the world stands.
[[nodiscard]] inline RankReport report_of(const RankState& me, int r) {
  RankReport p;
  p.rank = r;
  p.returned = me.returned;
  p.meeting = me.meeting;
  p.collectives = me.collectives;
  if (me.group == nullptr) return p;
  const Arrival& a = me.group->arrivals[static_cast<std::size_t>(me.group_rank)];
  p.op = a.call.op;
  p.reduction = a.call.reduction;
  if (a.has_input) {
    p.shape = a.shape;
    p.dtype = a.dtype;
  }
  p.dim = a.call.dim;
  p.root = a.call.root;
  p.group = me.group->name;
  p.group_rank = me.group_rank;
  p.sequence = me.sequence;
  p.at = a.call.at;
  return p;
}

/// "group world #1: 2 of 4 ranks wait; rank 1 returned; rank 3 waits in world/0"
[[nodiscard]] inline Violation absent_from(const Group& g, const std::vector<RankState>& ranks) {
  std::string text = "group " + g.name + " #" + std::to_string(g.sequence) + ": " +
                     std::to_string(g.arrived) + " of " + std::to_string(g.size()) + " ranks wait";
  int left = 4;
  for (const int m : g.members) {
    const RankState& other = ranks[static_cast<std::size_t>(m)];
    if (other.waiting && other.group.get() == &g) continue;
    if (left-- == 0) return {"collectives", text + "; and so on"};
    text += "; rank " + std::to_string(m) +
            (other.returned  ? " returned"
             : other.waiting ? " waits in " + other.group->name
                             : " is not there yet");
  }
  return {"collectives", text};
}

}  // namespace tpsim::detail
