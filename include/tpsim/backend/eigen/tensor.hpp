// SPDX-License-Identifier: MIT
// The numeric backend's activations and parameters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <variant>

#include <Eigen/Core>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/eigen/parallel.hpp>

namespace tpsim::eigen {

/// Row-major, as engines keep activations and checkpoints keep weights.
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// An activation [tokens, columns].
template <class Real>
struct Tensor {
  Matrix<Real> value;
  /// |value - exact| <= bound for each element, where exact is real arithmetic on the inputs and
  /// weights as given. Empty: exact, or not tracked.
  Matrix<double> bound;

  [[nodiscard]] bool has_bound() const { return bound.size() > 0; }
  [[nodiscard]] double bound_at(Index t, Index c) const { return has_bound() ? bound(t, c) : 0.0; }
};

/// What a rank holds of a weight [out, in] or a bias [out] (one column).
struct Param {
  Shape shape;
  DType dtype = DType::f32;  ///< how the elements are kept
  std::variant<Matrix<std::uint16_t>, Matrix<float>, Matrix<double>> storage;
  std::uint64_t poison = 0;  ///< bits of an element that was never written

  [[nodiscard]] double at(Index row, Index col) const {
    if (const auto* words = std::get_if<0>(&storage))
      return static_cast<double>(from_word(dtype, (*words)(row, col)));
    if (const auto* singles = std::get_if<1>(&storage))
      return static_cast<double>((*singles)(row, col));
    return std::get<2>(storage)(row, col);
  }
  /// The element as it lies in memory.
  [[nodiscard]] std::uint64_t bits(Index row, Index col) const {
    return std::visit(
        [&](const auto& m) {
          std::uint64_t out = 0;
          std::memcpy(&out, &m(row, col), sizeof m(row, col));
          return out;
        },
        storage);
  }
  /// Elements that still hold this rank's poison.
  [[nodiscard]] Index count_poison() const {
    Index count = 0;
    for (Index r = 0; r < shape.rows(); ++r)
      for (Index c = 0; c < shape.cols(); ++c) count += bits(r, c) == poison ? 1 : 0;
    return count;
  }
};

/// A quiet NaN that is not the canonical one and tells the rank. Ranks that differ modulo 126
/// (bf16), 1022 (f16), 2^22 (f32) have different bits.
[[nodiscard]] constexpr std::uint64_t poison_bits(DType t, int tp_rank) {
  const auto r = static_cast<std::uint64_t>(tp_rank);
  switch (t) {
    case DType::bf16:
      return 0x7fc0U | ((r / 63 % 2) << 15U) | (1 + r % 63);
    case DType::f16:
      return 0x7e00U | ((r / 511 % 2) << 15U) | (1 + r % 511);
    case DType::f32:
      return 0x7fc00000U | (1 + r % 0x3fffffU);
    default:
      return 0x7ff8000000000000U | (1 + r);
  }
}

/// A parameter of this shape, full of the rank's poison.
[[nodiscard]] inline Param poisoned(Shape shape, DType dtype, int tp_rank) {
  Param p{shape, dtype, {}, poison_bits(dtype, tp_rank)};
  if (is_16bit(dtype))
    p.storage.emplace<0>();
  else if (dtype == DType::f32)
    p.storage.emplace<1>();
  else
    p.storage.emplace<2>();
  std::visit(
      [&](auto& m) {
        m.resize(shape.rows(), shape.cols());
        using T = typename std::decay_t<decltype(m)>::Scalar;
        T nan;
        std::memcpy(&nan, &p.poison, sizeof nan);
        parallel_for(m.rows(), m.size() > 1 << 16,
                     [&](Index r) { std::fill_n(m.data() + r * m.cols(), m.cols(), nan); });
      },
      p.storage);
  return p;
}

}  // namespace tpsim::eigen
