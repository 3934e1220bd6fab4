// SPDX-License-Identifier: MIT
// Waiting for other processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace tpsim::process {

/// Waits for little at first, then in longer and longer pauses: the others may need this core.
class Pause {
 public:
  void operator()() {
    ++count_;
    if (count_ < 100) return;
    if (count_ < 400) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 * (count_ - 399), 1000)));
  }
  void reset() {
    count_ = 0;
    start_ = Clock::now();
  }
  /// Has it been so long since something has happened? Never for 0.
  [[nodiscard]] bool is_longer_than(double seconds) const {
    return seconds > 0 && std::chrono::duration<double>(Clock::now() - start_).count() > seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int count_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace tpsim::process
