// SPDX-License-Identifier: MIT
// Row-major fp32 matrices somewhere in memory, as kernels and launches see them. Plain C++17.
#pragma once

#include <cstdint>

namespace tpsim::cuda {

using Size = std::int64_t;

/// Element (row, col) is data[row * stride + col]; stride >= cols. Not owning.
struct ConstMatrix {
  const float* data = nullptr;
  Size rows = 0, cols = 0, stride = 0;
};
struct Matrix {
  float* data = nullptr;
  Size rows = 0, cols = 0, stride = 0;
  operator ConstMatrix() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, cols, stride};
  }
};

enum class ReduceOp { sum, max };

}  // namespace tpsim::cuda
