// SPDX-License-Identifier: MIT
// Device memory and launches, behind plain C++17: no CUDA header, no Eigen, nothing of C++20.
// sim/cuda/cuda_ops.cu implements it; tests/support/host_device.cpp does on the CPU.
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

/// `count` products: y [rows, cols] := a [rows, inner] b, added in f32 in an order that cuBLAS
/// chooses, rounded once to y's type. a and b have one type; y has it too, or is f32.
/// b is [cols, inner] (a weight, `transposed`) or [inner, cols].
struct Product {
  ConstMatrix a, b;
  Matrix y;
  bool transposed = true;
  bool tf32 = false;  ///< f32 factors may be rounded to TF32 (11 bits)
  Size count = 1;
  Size a_step = 0, b_step = 0, y_step = 0;  ///< elements from one product to the next
};

/// What attention's softmax reads beside its scores: body::Softmax has the meaning.
struct SoftmaxSpec {
  Size tokens = 0, first_position = 0, window = 0;
  double scale = 1;
  const double* slopes = nullptr;
  ConstMatrix sinks = {};
};

/// One GPU with one stream and one cuBLASLt handle. All work is queued on the stream in call order;
/// `download` waits for it. Pointers and matrices are device memory unless a parameter is called
/// `host`. Copies of a Device share all of it: so do virtual ranks. Every method throws Error.
class Device {
 public:
  struct State;
  struct Free {
    std::shared_ptr<State> state;  // keeps the stream until the memory went back to it
    void operator()(void* memory) const noexcept;
  };
  using Buffer = std::unique_ptr<void, Free>;

  /// Is this the implementation by nvcc (or a test's), and not the one that refuses everything?
  [[nodiscard]] static bool is_built();
  /// Devices that can be used; 0 without a GPU or without a driver.
  [[nodiscard]] static int count();
  /// Why count() is 0, as the driver says it: "no CUDA-capable device is detected".
  [[nodiscard]] static std::string why_none();
  /// "CUDA runtime 13.0, driver 13.0, cuBLASLt 13.0.2". Needs no GPU. @throws Error without
  /// cuBLASLt
  [[nodiscard]] static std::string versions();
  /// The process's own: the device that the first call names, for all later ones.
  [[nodiscard]] static Device shared(int ordinal = 0);

  explicit Device(int ordinal = 0);
  /// "NVIDIA H100, compute capability 9.0"
  [[nodiscard]] std::string name() const;
  /// Waits for all that is queued, and tells whether it went well.
  void wait();

  /// Stream-ordered (cudaMallocAsync), not initialised; null when 0.
  [[nodiscard]] Buffer allocate(Size bytes);

  /// Host memory that copies read while the caller goes on: a ring of pinned buffers. staging() is
  /// the next one, free to be written, of staging_bytes; send() queues the copy of its first
  /// elements to `out`, of out's type, row by row without gaps.
  static constexpr Size staging_bytes = Size{4} << 20;
  [[nodiscard]] void* staging();
  void send(Matrix out);
  /// A device array with these bytes. The host memory is free on return.
  [[nodiscard]] Buffer array(const void* host, Size bytes);
  /// host := in, of its type and without gaps, once all queued work is done.
  void download(ConstMatrix in, void* host);

  // What each of these computes is in bodies/*.hpp, under the same name.
  void fill(Matrix out, std::uint32_t bits);
  /// out := in, of one shape; converts where the types differ.
  void copy(ConstMatrix in, Matrix out);
  void product(const Product& p);
  void add(ConstMatrix a, ConstMatrix b, Matrix out);
  void mul(ConstMatrix a, ConstMatrix b, Matrix out);
  void add_bias(ConstMatrix y, ConstMatrix bias, Matrix out);
  void mul_columns(ConstMatrix x, ConstMatrix w, Matrix out);
  void times(ConstMatrix x, double factor, Matrix out);
  void keep_tokens(ConstMatrix x, const std::uint8_t* keep, Matrix out);
  void lookup(ConstMatrix table, const Size* rows, Matrix out);
  void activate(Activation f, ConstMatrix x, Matrix out);
  void row_sums(ConstMatrix x, bool squares, Matrix out);
  void centered(ConstMatrix x, ConstMatrix sums, double count, Matrix out);
  void rms_normalized(ConstMatrix x, ConstMatrix square_sums, double count, double eps, Matrix out);
  void rope(ConstMatrix x, const double* turns, Size head_dim, Size pairs, bool interleaved,
            Matrix out);
  void softmax(ConstMatrix products, const SoftmaxSpec& spec, Matrix weights);
  void largest(ConstMatrix x, Size first_id, float none, Matrix out);
  void best_of(ConstMatrix pairs, float none, Matrix out);
  /// @param parts  `count` tensors of out's type and size, without gaps
  void sum_over_ranks(const void* const* parts, Size count, SumOrder order, Matrix out);
  void max_over_ranks(const void* const* parts, Size count, Matrix out);

  /// For what shares its stream: defined where CUDA's headers are.
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tpsim::cuda
