// SPDX-License-Identifier: MIT
// Shapes of one or two dimensions, and the data types tpsim knows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <tpsim/core/error.hpp>

namespace tpsim {

/// Every size, offset and index: signed, so that a negative one is seen and refused.
using Index = std::int64_t;

/// `[rows, cols]`, or `[rows]` for a 1-D tensor (a bias), whose `cols()` is 1.
/// Weights are `[out, in]`; activations are `[tokens, columns]`.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr explicit Shape(Index rows) : dims_{rows, 1}, rank_(1) {}
  constexpr Shape(Index rows, Index cols) : dims_{rows, cols}, rank_(2) {}

  [[nodiscard]] constexpr int rank() const { return rank_; }
  [[nodiscard]] constexpr Index rows() const { return dims_[0]; }
  [[nodiscard]] constexpr Index cols() const { return dims_[1]; }
  [[nodiscard]] constexpr Index dim(int d) const { return dims_[static_cast<std::size_t>(d)]; }
  [[nodiscard]] constexpr Index size() const { return dims_[0] * dims_[1]; }
  /// The same shape with dimension `d` set to `extent`.
  [[nodiscard]] constexpr Shape with(int d, Index extent) const {
    Shape changed = *this;
    changed.dims_[static_cast<std::size_t>(d)] = extent;
    return changed;
  }
  /// "[6144, 4096]" or "[6144]".
  [[nodiscard]] std::string str() const {
    return rank_ == 1 ? "[" + std::to_string(dims_[0]) + "]"
                      : "[" + std::to_string(dims_[0]) + ", " + std::to_string(dims_[1]) + "]";
  }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<Index, 2> dims_{0, 0};
  int rank_ = 2;
};

/// Element types of activations and weights. `field` is GF(2^61-1), `symbol` has no numbers.
enum class DType : std::uint8_t { f64, f32, bf16, f16, field, symbol };

[[nodiscard]] constexpr std::string_view name(DType dtype) {
  constexpr std::array<std::string_view, 6> names{"f64", "f32", "bf16", "f16", "field", "symbol"};
  return names[static_cast<std::size_t>(dtype)];
}

/// Bytes of one element. A symbol stands for an f32.
[[nodiscard]] constexpr Index bytes_of(DType dtype) {
  constexpr std::array<Index, 6> bytes{8, 4, 2, 2, 8, 4};
  return bytes[static_cast<std::size_t>(dtype)];
}

}  // namespace tpsim
