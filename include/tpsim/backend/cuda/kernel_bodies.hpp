// SPDX-License-Identifier: MIT
// What each kernel does, written once for the GPU and for the CPU. Plain C++17.
//
// A body is one lane's share of an element-wise operation: lane `index` of `count` takes the
// elements index, index + count, ... No lane reads what another one writes.
#pragma once

#include <cmath>

#include <tpsim/backend/cuda/matrix.hpp>

#ifdef __CUDACC__
#define TPSIM_HOST_DEVICE __host__ __device__
#else
#define TPSIM_HOST_DEVICE
#endif

namespace tpsim::cuda {

struct Lane {
  Size index = 0, count = 1;
};

/// Matrices of one shape, by value, so that one launch sums them all. `count` is 1 to capacity.
struct Parts {
  static constexpr int capacity = 64;
  ConstMatrix part[capacity];
  int count = 0;
};

namespace body {

TPSIM_HOST_DEVICE inline float at(const ConstMatrix& m, Size i) {
  return m.data[i / m.cols * m.stride + i % m.cols];
}
TPSIM_HOST_DEVICE inline float& at(const Matrix& m, Size i) {
  return m.data[i / m.cols * m.stride + i % m.cols];
}

/// out = value, everywhere
struct Fill {
  Matrix out;
  float value;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count) at(out, i) = value;
  }
};

/// out[row, col] = y[row, col] + bias[col]
struct AddBias {
  ConstMatrix y;
  const float* bias;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count)
      at(out, i) = at(y, i) + bias[i % out.cols];
  }
};

/// out = a * b, element by element
struct Mul {
  ConstMatrix a, b;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count)
      at(out, i) = at(a, i) * at(b, i);
  }
};

/// out = a / (1 + exp(-a)). Equal to a, to the bit, where exp(-a) < 2^-24 (a > 16.7).
struct Silu {
  ConstMatrix a;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count) {
      const float x = at(a, i);
      at(out, i) = x / (1.0F + expf(-x));
    }
  }
};

/// out = ((part 0 + part 1) + part 2) + ..., in that order; out may be part 0
struct Sum {
  Parts parts;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count) {
      float sum = at(parts.part[0], i);
      for (int k = 1; k < parts.count; ++k) sum += at(parts.part[k], i);
      at(out, i) = sum;
    }
  }
};

/// out = the largest; a NaN (poison) wins, where fmaxf would hide it
struct Max {
  Parts parts;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.rows * out.cols; i += lane.count) {
      float most = at(parts.part[0], i);
      for (int k = 1; k < parts.count; ++k) {
        const float next = at(parts.part[k], i);
        if (next > most || next != next) most = next;
      }
      at(out, i) = most;
    }
  }
};

}  // namespace body

/// The parts in launches of at most Parts::capacity, each going on from the sum so far.
template <class Launch>
void reduce_in_order(ReduceOp op, const ConstMatrix* parts, int count, Matrix out, Launch launch) {
  for (int next = 0; next < count;) {
    Parts some;
    if (next > 0) some.part[some.count++] = out;
    while (next < count && some.count < Parts::capacity) some.part[some.count++] = parts[next++];
    if (op == ReduceOp::sum)
      launch(body::Sum{some, out});
    else
      launch(body::Max{some, out});
  }
}

/// A quiet NaN with a payload: no two of the first 2^22 numbers give the same bits.
[[nodiscard]] inline std::uint32_t poison_bits(std::uint32_t number) {
  return 0x7fc00000U | (number & 0x003fffffU);
}

}  // namespace tpsim::cuda
