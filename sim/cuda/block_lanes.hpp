// SPDX-License-Identifier: MIT
// The lanes of one thread block, and what they find together: each warp by exchanging values, then
// one value of each warp, in order. Needs nvcc.
#pragma once

#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda {

/// @pre every thread of the block calls, and blockDim.x is a multiple of 32, at most 1024
class BlockLanes {
 public:
  __device__ double sum(double x) const { return of_all(x, Sum{}); }
  __device__ double max(double x) const { return of_all(x, Max{}); }
  __device__ Choice best(const Choice& x) const { return of_all(x, Best{}); }

 private:
  static constexpr unsigned everybody = 0xffffffffU;
  static __device__ double partner(double x, int distance) {
    return __shfl_xor_sync(everybody, x, distance);
  }
  static __device__ Choice partner(const Choice& x, int distance) {
    return {__shfl_xor_sync(everybody, x.value, distance),
            __shfl_xor_sync(everybody, x.id, distance)};
  }
  template <class T, class Op>
  static __device__ T of_all(T x, Op op) {
    // Bytes: shared memory runs no constructors.
    __shared__ alignas(8) unsigned char memory[32 * sizeof(T)];
    T* const of_warp = reinterpret_cast<T*>(memory);
    // Both partners compute the same: the operations do not mind which value comes first, but for
    // NaNs, of which any will do.
    for (int distance = 16; distance > 0; distance /= 2) x = op(x, partner(x, distance));
    const unsigned warps = blockDim.x / 32;
    if (warps == 1) return x;
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    T out = of_warp[0];
    for (unsigned w = 1; w < warps; ++w) out = op(out, of_warp[w]);
    __syncthreads();  // before the next value is written
    return out;
  }
};

}  // namespace tpsim::cuda
