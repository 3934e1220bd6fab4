// SPDX-License-Identifier: MIT
// Which processes of a job form the tensor-parallel group: a rank's number in its group is seldom
// its number in the job.
#pragma once

#include <cstdint>

namespace tpsim {

/// A job of `groups` tensor-parallel groups of equal size, of which the last one is looked at. No
/// result may depend on it. Every rank has a part of equal size, so no rank is ever empty.
struct GroupPlace {
  enum class Order : std::uint8_t {
    consecutive,  ///< group g: processes g tp, g tp + 1, ...
    strided,      ///< group g: processes g, g + groups, ... (data parallel inside)
    reversed,     ///< as consecutive, the last process is rank 0
  };
  int groups = 1;
  Order order = Order::consecutive;

  /// The group is the job: nothing has to be split.
  [[nodiscard]] constexpr bool is_whole() const { return groups == 1 && order != Order::reversed; }
  [[nodiscard]] constexpr int group_of(int process, int tp) const {
    return order == Order::strided ? process % groups : process / tp;
  }
  /// Processes of a group have their ranks in ascending order of this.
  [[nodiscard]] constexpr int key_of(int process) const {
    return order == Order::reversed ? -process : process;
  }
};

}  // namespace tpsim
