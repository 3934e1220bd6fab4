// SPDX-License-Identifier: MIT
// Row-major matrices somewhere in memory, as kernels and launches see them. Plain C++17.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define TPSIM_HOST_DEVICE __host__ __device__
#else
#define TPSIM_HOST_DEVICE
#endif

namespace tpsim::cuda {

using Size = std::int64_t;

/// How an element is kept. bf16 and f16 are 2-byte words; every operation computes in f32 or f64.
enum class Type : std::uint8_t { f32, bf16, f16 };

TPSIM_HOST_DEVICE constexpr Size bytes_of(Type t) { return t == Type::f32 ? 4 : 2; }

/// Element (row, col) is number row * stride + col of `data`; stride >= cols. Not owning.
struct ConstMatrix {
  const void* data = nullptr;
  Size rows = 0, cols = 0, stride = 0;
  Type type = Type::f32;

  TPSIM_HOST_DEVICE constexpr Size size() const { return rows * cols; }
  TPSIM_HOST_DEVICE constexpr bool has_gaps() const { return rows > 1 && stride != cols; }
};
struct Matrix {
  void* data = nullptr;
  Size rows = 0, cols = 0, stride = 0;
  Type type = Type::f32;

  TPSIM_HOST_DEVICE constexpr Size size() const { return rows * cols; }
  TPSIM_HOST_DEVICE operator ConstMatrix() const {  // NOLINT(google-explicit-constructor)
    return {data, rows, cols, stride, type};
  }
};

/// The rectangle with this first element, in the same memory.
TPSIM_HOST_DEVICE inline ConstMatrix part_of(const ConstMatrix& m, Size row, Size rows, Size col,
                                             Size cols) {
  const Size skip = (row * m.stride + col) * bytes_of(m.type);
  const auto* data = static_cast<const unsigned char*>(m.data);
  return {data == nullptr ? nullptr : data + skip, rows, cols, m.stride, m.type};
}
TPSIM_HOST_DEVICE inline Matrix part_of(const Matrix& m, Size row, Size rows, Size col, Size cols) {
  const Size skip = (row * m.stride + col) * bytes_of(m.type);
  auto* data = static_cast<unsigned char*>(m.data);
  return {data == nullptr ? nullptr : data + skip, rows, cols, m.stride, m.type};
}

enum class ReduceOp : std::uint8_t { sum, max };
enum class Activation : std::uint8_t { silu, gelu, gelu_tanh };

/// Orders and roundings of a sum over ranks: tpsim::ReduceOrder, which this header cannot include.
enum class SumOrder : std::uint8_t { rank, ring, once };

}  // namespace tpsim::cuda
