// SPDX-License-Identifier: MIT
// What one cuda::Device owns: stream, cuBLASLt handle with its workspace, pinned buffers.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <utility>

#include <tpsim/backend/cuda/cuda_ops.hpp>

#include "sim/cuda/cublas_lt.hpp"

namespace tpsim::cuda {

/// Pinned buffers in turn. A buffer is written again when the copy that reads it is done.
class PinnedRing {
 public:
  PinnedRing() = default;
  PinnedRing(const PinnedRing&) = delete;
  PinnedRing& operator=(const PinnedRing&) = delete;
  // Nothing can be done about a failure here; the process keeps its context until it ends.
  ~PinnedRing() {
    for (Slot& s : slots_) {
      if (s.copied != nullptr) (void)cudaEventDestroy(s.copied);
      if (s.memory != nullptr) (void)cudaFreeHost(s.memory);
    }
  }
  /// The next buffer, once nobody reads it.
  void* take() {
    Slot& s = slots_[next_];
    if (s.memory == nullptr) {
      TPSIM_CUDA(cudaMallocHost(&s.memory, static_cast<std::size_t>(Device::staging_bytes)));
      TPSIM_CUDA(cudaEventCreateWithFlags(&s.copied, cudaEventDisableTiming));
    }
    TPSIM_CUDA(cudaEventSynchronize(s.copied));
    return s.memory;
  }
  [[nodiscard]] const void* taken() const { return slots_[next_].memory; }
  /// Its copy was queued on `stream`.
  void sent(cudaStream_t stream) {
    TPSIM_CUDA(cudaEventRecord(slots_[next_].copied, stream));
    next_ = (next_ + 1) % slots_.size();
  }

 private:
  struct Slot {
    void* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };
  std::array<Slot, 4> slots_{};
  std::size_t next_ = 0;
};

struct Device::State {
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  using ProductKey = std::array<Size, 18>;

  int ordinal = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t cublas = nullptr;
  void* workspace = nullptr;
  PinnedRing ring;
  std::map<ProductKey, cublasLtMatmulAlgo_t> algorithms;  ///< of products seen before
  cudaError_t free_failed = cudaSuccess;  // a deleter cannot throw: the next call does

  explicit State(int device) : ordinal(device) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    (void)cudaSetDevice(ordinal);
    if (stream != nullptr) (void)cudaStreamSynchronize(stream);
    if (workspace != nullptr) (void)cudaFree(workspace);
    if (cublas != nullptr) (void)cublas_lt().cublasLtDestroy(cublas);
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  }
  /// Before every use: CUDA's current device belongs to the thread, not to us.
  cudaStream_t use() {
    TPSIM_CUDA(std::exchange(free_failed, cudaSuccess));
    TPSIM_CUDA(cudaSetDevice(ordinal));
    return stream;
  }
};

}  // namespace tpsim::cuda
