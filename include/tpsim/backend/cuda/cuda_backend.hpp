// SPDX-License-Identifier: MIT
// The backend whose tensors are fp32 matrices on a CUDA device.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/backend/cuda/kernel_bodies.hpp>

namespace tpsim {

/// Backend over a device: cuda::Device, or cuda::HostDevice for tests without a GPU. Tensors and
/// parameters own their memory, have no gaps and can only be moved.
/// Errors: LayoutError for shapes that do not fit, cuda::Error for the device.
template <class D>
class DeviceBackend {
  struct Memory {
    Shape shape;
    typename D::Buffer buffer;
  };

 public:
  class Tensor : Memory {
    friend class DeviceBackend;
    explicit Tensor(Memory memory) : Memory(std::move(memory)) {}
  };
  class Param : Memory {
    friend class DeviceBackend;
    explicit Param(Memory memory) : Memory(std::move(memory)) {}
  };

  explicit DeviceBackend(D device) : device_(std::move(device)) {}

  [[nodiscard]] Shape shape(const Tensor& x) const { return x.shape; }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape; }
  [[nodiscard]] DType dtype(const Tensor&) const { return DType::f32; }

  /// Poison: NaNs whose payload counts the parameters of this backend, so that no two are alike.
  Param empty(std::string_view, Shape shape) {
    Param param(allocate(shape));
    device_.fill_bits(view(param), cuda::poison_bits(++parameters_));
    return param;
  }

  /// Reads the view's rows in their order, at most `staging` elements at a time (or one row).
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) {
    require_copy_fits(param.shape, dim, offset, full, start, length);
    if (!full.stored().values)
      throw LayoutError("cannot copy from " + full.name(),
                        {{"cover", full.name() + " has no numbers"}});
    const Index rows = dim == 0 ? length : param.shape.rows();
    const Index cols = dim == 0 ? param.shape.cols() : length;
    const Index from_row = dim == 0 ? start : 0, from_col = dim == 0 ? 0 : start;
    const Index to_row = dim == 0 ? offset : 0, to_col = dim == 0 ? 0 : offset;
    if (rows == 0 || cols == 0) return;

    const Index chunk = std::clamp<Index>(staging / cols, 1, rows);
    std::vector<float> host(static_cast<std::size_t>(chunk * cols));
    for (Index done = 0; done < rows; done += chunk) {
      const Index some = std::min(chunk, rows - done);
      auto row = host.begin();
      for (const Run& run : full.stored_rows().slice(from_row + done, some))
        for (Index i = 0; i < run.length; ++i, row += cols)
          full.stored().values->read(run.at(i), from_col, std::span<float>(row, row + cols));
      device_.upload(host.data(), part(param, to_row + done, some, to_col, cols));
    }
  }

  Tensor linear(const Tensor& x, const Param& w) {
    if (x.shape.cols() != w.shape.cols())
      refuse("linear", "x is " + x.shape.str() + ", w is " + w.shape.str());
    Tensor y(allocate(Shape(x.shape.rows(), w.shape.rows())));
    device_.linear(view(x), view(w), view(y));
    return y;
  }
  Tensor add_bias(const Tensor& y, const Param& bias) {
    if (bias.shape.size() != y.shape.cols())
      refuse("add_bias", "y is " + y.shape.str() + ", the bias is " + bias.shape.str());
    Tensor out(allocate(y.shape));
    device_.add_bias(view(y), bias.buffer.get(), view(out));
    return out;
  }
  Tensor mul(const Tensor& a, const Tensor& b) {
    require_same("mul", a, b);
    Tensor out(allocate(a.shape));
    device_.mul(view(a), view(b), view(out));
    return out;
  }
  Tensor silu(const Tensor& a) {
    Tensor out(allocate(a.shape));
    device_.silu(view(a), view(out));
    return out;
  }
  Tensor slice(const Tensor& x, int dim, Index start, Index length) {
    if (start < 0 || length < 0 || start > x.shape.dim(dim) - length)
      refuse("slice", x.shape.str() + " has no entries [" + std::to_string(start) + ", " +
                          std::to_string(start + length) + ") in dimension " + std::to_string(dim));
    Tensor out(allocate(x.shape.with(dim, length)));
    device_.copy(entries(x, dim, start, length), view(out));
    return out;
  }
  Tensor concat(std::span<const Tensor* const> parts, int dim) {
    if (parts.empty()) refuse("concat", "there are no parts");
    Index extent = 0;
    for (const Tensor* p : parts) {
      if (p->shape.with(dim, 0) != parts[0]->shape.with(dim, 0))
        refuse("concat", "parts are " + parts[0]->shape.str() + " and " + p->shape.str());
      extent += p->shape.dim(dim);
    }
    Tensor out(allocate(parts[0]->shape.with(dim, extent)));
    Index at = 0;
    for (const Tensor* p : parts) {
      device_.copy(view(*p), entries(out, dim, at, p->shape.dim(dim)));
      at += p->shape.dim(dim);
    }
    return out;
  }
  Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
    if (parts.empty()) refuse("reduce", "there are no parts");
    std::vector<cuda::ConstMatrix> in;
    for (const Tensor* p : parts) {
      require_same("reduce", *parts[0], *p);
      in.push_back(view(*p));
    }
    Tensor out(allocate(parts[0]->shape));
    device_.reduce(op == Reduction::sum ? cuda::ReduceOp::sum : cuda::ReduceOp::max, in.data(),
                   static_cast<int>(in.size()), view(out));
    return out;
  }

  /// A tensor with these numbers, row by row. @throws LayoutError when they are too few or many
  Tensor from_host(Shape shape, std::span<const float> numbers) {
    if (static_cast<Index>(numbers.size()) != shape.size())
      refuse("from_host", shape.str() + " from " + std::to_string(numbers.size()) + " numbers");
    Tensor x(allocate(shape));
    device_.upload(numbers.data(), view(x));
    return x;
  }
  /// The numbers of a tensor or parameter, row by row; waits for the device.
  [[nodiscard]] std::vector<float> to_host(const Tensor& x) { return download(x); }
  [[nodiscard]] std::vector<float> to_host(const Param& w) { return download(w); }

 private:
  static constexpr Index staging = Index{1} << 22;  // 16 MiB of floats

  Memory allocate(Shape shape) { return {shape, device_.allocate(shape.size())}; }

  std::vector<float> download(const Memory& m) {
    std::vector<float> numbers(static_cast<std::size_t>(m.shape.size()));
    device_.download(view(m), numbers.data());
    return numbers;
  }
  static cuda::Matrix part(const Memory& m, Index row, Index rows, Index col, Index cols) {
    const Index stride = m.shape.cols();
    return {m.buffer.get() + row * stride + col, rows, cols, stride};
  }
  static cuda::Matrix view(const Memory& m) {
    return part(m, 0, m.shape.rows(), 0, m.shape.cols());
  }
  static cuda::Matrix entries(const Memory& m, int dim, Index start, Index length) {
    return dim == 0 ? part(m, start, length, 0, m.shape.cols())
                    : part(m, 0, m.shape.rows(), start, length);
  }
  [[noreturn]] static void refuse(const std::string& operation, const std::string& why) {
    throw LayoutError("cannot compute " + operation + ": the shapes do not fit", {{"state", why}});
  }
  static void require_same(const std::string& operation, const Tensor& a, const Tensor& b) {
    if (a.shape != b.shape)
      refuse(operation, "operands are " + a.shape.str() + " and " + b.shape.str());
  }

  D device_;
  std::uint32_t parameters_ = 0;
};

/// On a GPU. Needs the library made from sim/cuda.
using CudaBackend = DeviceBackend<cuda::Device>;

}  // namespace tpsim
