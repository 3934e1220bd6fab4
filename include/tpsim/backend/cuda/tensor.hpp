// SPDX-License-Identifier: MIT
// What the CUDA backend holds: matrices that own their device memory.
#pragma once

#include <utility>

#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim {

/// @pre t is f32, bf16 or f16
[[nodiscard]] constexpr cuda::Type device_type(DType t) {
  return t == DType::bf16 ? cuda::Type::bf16 : t == DType::f16 ? cuda::Type::f16 : cuda::Type::f32;
}
[[nodiscard]] constexpr DType dtype_of(cuda::Type t) {
  return t == cuda::Type::bf16 ? DType::bf16 : t == cuda::Type::f16 ? DType::f16 : DType::f32;
}

namespace detail {

/// A matrix without gaps that owns its memory. Can only be moved.
class DeviceMemory {
 public:
  DeviceMemory(cuda::Device& device, Shape shape, cuda::Type type)
      : shape_(shape), type_(type), buffer_(device.allocate(shape.size() * cuda::bytes_of(type))) {}

  [[nodiscard]] Shape shape() const { return shape_; }
  [[nodiscard]] cuda::Type type() const { return type_; }
  [[nodiscard]] cuda::Matrix view() const {
    return {buffer_.get(), shape_.rows(), shape_.cols(), shape_.cols(), type_};
  }
  /// A vector [n] as one row.
  [[nodiscard]] cuda::Matrix as_row() const {
    return {buffer_.get(), 1, shape_.size(), shape_.size(), type_};
  }
  /// Entries [start, start + length) along `dim`.
  [[nodiscard]] cuda::Matrix entries(int dim, Index start, Index length) const {
    return dim == 0 ? cuda::part_of(view(), start, length, 0, shape_.cols())
                    : cuda::part_of(view(), 0, shape_.rows(), start, length);
  }

 private:
  Shape shape_;
  cuda::Type type_;
  cuda::Device::Buffer buffer_;
};

}  // namespace detail

/// An activation [tokens, columns] on the device. Of a model in bf16 or f16 it is 2-byte words, or
/// f32 where it is wide: statistics and unrounded sums.
class DeviceTensor : public detail::DeviceMemory {
  using DeviceMemory::DeviceMemory;
};
/// A weight [out, in] or a bias [out] on the device, in the model's type.
class DeviceParam : public detail::DeviceMemory {
  using DeviceMemory::DeviceMemory;
};

}  // namespace tpsim
