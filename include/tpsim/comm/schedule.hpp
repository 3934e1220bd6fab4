// SPDX-License-Identifier: MIT
// In which order virtual ranks take their turns. No result may depend on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tpsim/core/random.hpp>

namespace tpsim {

/// The order in which ranks start and go on after a collective.
struct Schedule {
  enum class Order : std::uint8_t { ranks, reversed, shuffled };
  Order order = Order::ranks;
  std::uint64_t seed = 0;

  [[nodiscard]] static constexpr Schedule in_order() { return {}; }
  [[nodiscard]] static constexpr Schedule reversed() { return {Order::reversed, 0}; }
  /// Each turn goes to any rank that can run, drawn from `seed`.
  [[nodiscard]] static constexpr Schedule shuffled(std::uint64_t seed) {
    return {Order::shuffled, seed};
  }
};

namespace detail {

/// The ranks that can run, in the order of their turns.
class ReadyQueue {
 public:
  explicit ReadyQueue(Schedule schedule) : schedule_(schedule) {}
  void clear() {
    ranks_.clear();
    head_ = 0;
    draws_ = 0;
  }
  [[nodiscard]] bool empty() const { return head_ == ranks_.size(); }
  /// Adds ranks that became ready together; all of `ranks` but `except`.
  void push(const std::vector<int>& ranks, int except = -1) {
    if (empty() || head_ > 4096) {
      ranks_.erase(ranks_.begin(), ranks_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    const auto begin = static_cast<std::ptrdiff_t>(ranks_.size());
    for (const int r : ranks)
      if (r != except) ranks_.push_back(r);
    if (schedule_.order == Schedule::Order::reversed)
      std::reverse(ranks_.begin() + begin, ranks_.end());
  }
  [[nodiscard]] int pop() {
    if (schedule_.order == Schedule::Order::shuffled) {
      const std::size_t left = ranks_.size() - head_;
      const std::size_t pick = mix(schedule_.seed + 0x9e3779b97f4a7c15U * ++draws_) % left;
      std::swap(ranks_[head_], ranks_[head_ + pick]);
    }
    return ranks_[head_++];
  }

 private:
  Schedule schedule_;
  std::vector<int> ranks_;
  std::size_t head_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace detail
}  // namespace tpsim
