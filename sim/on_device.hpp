// SPDX-License-Identifier: MIT
// A device that fails is no bug of the program.
#pragma once

#include <string>

#include <tpsim/backend/cuda/cuda_ops.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {

/// What f() computes on the device. @throws UsageError when the device fails
template <class F>
auto on_device(const F& f) {
  try {
    return f();
  } catch (const cuda::Error& e) {
    throw UsageError(std::string("the CUDA device failed: ") + e.what(),
                     "use --backend eigen, or smaller sizes");
  }
}

}  // namespace tpsim::cli
