// SPDX-License-Identifier: MIT
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
  void reset() { count_ = 0; }

 private:
  int count_ = 0;
};

}  // namespace tpsim::process
