// SPDX-License-Identifier: MIT
// A tensor's numbers in memory: small examples, and tensors that a program made itself.
#pragma once

#include <utility>
#include <vector>

#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// [rows, cols] floats, row-major.
class MemoryValues final : public Values {
 public:
  /// @throws LayoutError (divide) unless there is one number for each element
  MemoryValues(Shape shape, std::vector<float> numbers)
      : cols_(shape.cols()), numbers_(std::move(numbers)) {
    if (static_cast<Index>(numbers_.size()) != shape.size())
      throw LayoutError(
          "a tensor needs all its numbers",
          {{"divide", std::to_string(numbers_.size()) + " numbers for " + shape.str()}});
  }
  void read(Index row, Index col, std::span<float> out) const override { copy(row, col, out); }
  void read(Index row, Index col, std::span<double> out) const override { copy(row, col, out); }
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] std::span<const std::byte> bytes(Index row, Index col) const override {
    return std::as_bytes(std::span(numbers_).subspan(static_cast<std::size_t>(row * cols_ + col),
                                                     static_cast<std::size_t>(cols_ - col)));
  }

 private:
  template <class Real>
  void copy(Index row, Index col, std::span<Real> out) const {
    const auto from = numbers_.begin() + (row * cols_ + col);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<Real>(from[static_cast<std::ptrdiff_t>(i)]);
  }
  Index cols_;
  std::vector<float> numbers_;
};

/// A checkpoint tensor with these numbers, all of whose rows are its own in their order.
[[nodiscard]] inline FullTensor memory_tensor(const std::string& name, Shape shape,
                                              std::vector<float> numbers) {
  auto stored = std::make_shared<StoredTensor>();
  stored->name = name;
  stored->shape = shape;
  stored->identity = {{0, shape.rows(), std::make_shared<LogicalTensor>(name, shape), 0, 1}};
  stored->values = std::make_shared<MemoryValues>(shape, std::move(numbers));
  return FullTensor(std::move(stored));
}

}  // namespace tpsim
