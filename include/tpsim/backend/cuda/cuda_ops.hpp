// SPDX-License-Identifier: MIT
// Device memory and launches, behind plain C++17: no CUDA header, no Eigen, nothing of C++20.
// sim/cuda/cuda_ops.cu implements it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include <tpsim/backend/cuda/matrix.hpp>

namespace tpsim::cuda {

/// A CUDA or cuBLAS call that failed: which one, why, and at which file and line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One GPU with one stream and one cuBLAS handle. All work is queued on the stream in call order;
/// `download` waits for it. Matrices are device memory unless a parameter is called `host`.
/// Copies of a Device share stream and handle. Every method throws Error.
class Device {
 public:
  struct State;
  struct Free {
    std::shared_ptr<State> state;  // keeps the stream until the memory went back to it
    void operator()(float* memory) const noexcept;
  };
  using Buffer = std::unique_ptr<float, Free>;

  /// Devices that can be used; 0 without a GPU or without a driver.
  [[nodiscard]] static int count();

  explicit Device(int ordinal = 0);
  /// "NVIDIA H100, compute capability 9.0"
  [[nodiscard]] std::string name() const;

  /// `elements` floats, stream-ordered (cudaMallocAsync), not initialised; null when 0.
  [[nodiscard]] Buffer allocate(Size elements);
  /// Every element := the float with these bits.
  void fill_bits(Matrix out, std::uint32_t bits);
  /// out := host, [out.rows, out.cols] without gaps. The host memory is free on return.
  void upload(const float* host, Matrix out);
  /// host := in, without gaps, once all queued work is done.
  void download(ConstMatrix in, float* host);
  /// out := in, of one shape (slice, concat).
  void copy(ConstMatrix in, Matrix out);

  /// y [tokens, out] := x [tokens, in] * w [out, in]^T in fp32: no TF32, no emulation by bf16.
  void linear(ConstMatrix x, ConstMatrix w, Matrix y);
  /// out [tokens, n] := y [tokens, n] + bias [n] on every row.
  void add_bias(ConstMatrix y, const float* bias, Matrix out);
  void mul(ConstMatrix a, ConstMatrix b, Matrix out);
  /// out := a * sigmoid(a)
  void silu(ConstMatrix a, Matrix out);
  /// out := parts[0] (+) parts[1] (+) ..., in that order; count >= 1.
  void reduce(ReduceOp op, const ConstMatrix* parts, int count, Matrix out);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tpsim::cuda
