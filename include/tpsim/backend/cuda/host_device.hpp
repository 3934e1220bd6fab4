// SPDX-License-Identifier: MIT
// The interface of cuda::Device on host memory: the kernels' own bodies, lane by lane, and a plain
// loop in the place of cuBLAS. It lets the CUDA backend be tested where there is no GPU.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include <tpsim/backend/cuda/kernel_bodies.hpp>

namespace tpsim::cuda {

class HostDevice {
 public:
  using Buffer = std::unique_ptr<float[]>;

  /// @param lanes  how many lanes share each operation (a GPU has thousands)
  explicit HostDevice(Size lanes = 1) : lanes_(lanes) {}
  [[nodiscard]] std::string name() const { return "host, " + std::to_string(lanes_) + " lanes"; }

  [[nodiscard]] Buffer allocate(Size elements) {
    return Buffer(elements == 0 ? nullptr : new float[static_cast<std::size_t>(elements)]);
  }
  void fill_bits(Matrix out, std::uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    launch(body::Fill{out, value});
  }
  void upload(const float* host, Matrix out) { copy({host, out.rows, out.cols, out.cols}, out); }
  void download(ConstMatrix in, float* host) { copy(in, {host, in.rows, in.cols, in.cols}); }
  void copy(ConstMatrix in, Matrix out) {
    if (in.cols == 0) return;
    for (Size row = 0; row < in.rows; ++row)
      std::memcpy(out.data + row * out.stride, in.data + row * in.stride,
                  static_cast<std::size_t>(in.cols) * sizeof(float));
  }
  /// y [tokens, out] := x [tokens, in] * w [out, in]^T, products added in the order of `in`.
  void linear(ConstMatrix x, ConstMatrix w, Matrix y) {
    for (Size t = 0; t < y.rows; ++t)
      for (Size o = 0; o < y.cols; ++o) {
        float sum = 0;
        for (Size i = 0; i < x.cols; ++i)
          sum += x.data[t * x.stride + i] * w.data[o * w.stride + i];
        y.data[t * y.stride + o] = sum;
      }
  }
  void add_bias(ConstMatrix y, const float* bias, Matrix out) {
    launch(body::AddBias{y, bias, out});
  }
  void mul(ConstMatrix a, ConstMatrix b, Matrix out) { launch(body::Mul{a, b, out}); }
  void silu(ConstMatrix a, Matrix out) { launch(body::Silu{a, out}); }
  void reduce(ReduceOp op, const ConstMatrix* parts, int count, Matrix out) {
    reduce_in_order(op, parts, count, out, [this](const auto& body) { launch(body); });
  }

 private:
  // Last lane first: a body whose lanes depend on each other gives another result than one lane.
  template <class Body>
  void launch(const Body& body) const {
    for (Size lane = lanes_; lane-- > 0;) body(Lane{lane, lanes_});
  }
  Size lanes_;
};

}  // namespace tpsim::cuda
