// SPDX-License-Identifier: MIT
// How long the device takes for what is queued between two points, by its own clock. Plain C++17.
#pragma once

#include <memory>

#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::cuda {

class Timer {
 public:
  struct Events;
  explicit Timer(Device device);
  /// From here on.
  void start();
  /// Until here; waits. Milliseconds.
  [[nodiscard]] double stop();

 private:
  Device device_;
  std::shared_ptr<Events> events_;
};

}  // namespace tpsim::cuda
