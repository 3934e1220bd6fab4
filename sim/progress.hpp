// SPDX-License-Identifier: MIT
// A line that says how long something has been running.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace tpsim::cli {

/// While it lives: "verifying qkv tp 4 ... 3 s" on a terminal, from the first `step` on, written
/// anew at each; erased at the end.
class Progress {
 public:
  /// @param shown  false: nothing is written and nothing runs
  Progress(std::FILE* terminal, bool shown, std::string what,
           std::chrono::milliseconds step = std::chrono::seconds(1));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void watch(std::chrono::milliseconds step);

  std::FILE* terminal_;
  std::string what_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace tpsim::cli
