// SPDX-License-Identifier: MIT
#include "sim/progress.hpp"

#include <utility>

#include <fmt/format.h>

namespace tpsim::cli {

Progress::Progress(std::FILE* terminal, bool shown, std::string what,
                   std::chrono::milliseconds step)
    : terminal_(terminal), what_(std::move(what)) {
  if (shown) watcher_ = std::thread([this, step] { watch(step); });
}

Progress::~Progress() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  watcher_.join();
}

void Progress::watch(std::chrono::milliseconds step) {
  std::size_t width = 0;
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (int steps = 1; !ended_.wait_until(lock, start + steps * step, [this] { return over_; });
       ++steps) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(steps * step).count();
    const std::string line = fmt::format("{} ... {} s", what_, seconds);
    std::fputs(("\r" + line).c_str(), terminal_);
    std::fflush(terminal_);
    width = line.size();
  }
  if (width == 0) return;
  std::fputs(("\r" + std::string(width, ' ') + "\r").c_str(), terminal_);
  std::fflush(terminal_);
}

}  // namespace tpsim::cli
