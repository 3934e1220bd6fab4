// SPDX-License-Identifier: MIT
// cuda::Device on host memory, for tests without a GPU: link tests/support/host_device.cpp in the
// place of tpsim_cuda. It runs the kernels' own bodies, lane by lane, and a plain loop for cuBLAS.
#pragma once

#include <atomic>

#include <tpsim/backend/cuda/matrix.hpp>

namespace tpsim::cuda {

/// How the host plays a device. Set before a Device does its work.
struct HostDevice {
  Size lanes = 1;   ///< that share each operation; of a GPU's thread block there are 32 to 256
  int devices = 1;  ///< Device::count()
  std::atomic<Size> live{0};      ///< buffers that are allocated
  std::atomic<Size> products{0};  ///< calls of Device::product
  double off_by = 0;              ///< added to element 0 of every product: a device that is wrong
  bool always_tf32 = false;       ///< also where nobody asked for it: another one
  /// Of this thread: the next that fails, counted from 0; -1: none.
  static thread_local int failing_allocation;
  [[nodiscard]] static HostDevice& instance();
};

}  // namespace tpsim::cuda
