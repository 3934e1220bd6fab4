// SPDX-License-Identifier: MIT
// The numeric backend's parameters: numbers in memory, or the places that they are made from.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <variant>
#include <vector>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/eigen/parallel.hpp>
#include <tpsim/backend/eigen/tensor.hpp>
#include <tpsim/backend/eigen/value_rule.hpp>
#include <tpsim/layout/pieces.hpp>

namespace tpsim::eigen {

/// What a rank holds of a weight [out, in] or a bias [out] (one column).
///
/// Numbers that a checkpoint has are kept. Numbers that are a function of their place are not:
/// `made` says which rectangles were copied from where, and they are made again whenever they are
/// read, which is faster than memory and makes a large layer fit.
struct Param {
  Shape shape;
  DType dtype = DType::f32;  ///< how the elements are kept
  std::uint64_t poison = 0;  ///< bits of an element that was never written
  std::vector<Piece> made;   ///< while `storage` is empty; no two overlap
  ValueRule values;          ///< of `made`
  std::variant<std::monostate, Matrix<std::uint16_t>, Matrix<float>, Matrix<double>> storage;

  [[nodiscard]] bool is_stored() const { return storage.index() != 0; }

  /// The element as it lies in memory, or would.
  [[nodiscard]] std::uint64_t bits(Index row, Index col) const {
    return std::visit(
        [&](const auto& m) -> std::uint64_t {
          std::uint64_t out = 0;
          if constexpr (std::is_same_v<std::decay_t<decltype(m)>, std::monostate>)
            return made_bits(row, col);
          else
            std::memcpy(&out, &m(row, col), sizeof m(row, col));
          return out;
        },
        storage);
  }
  [[nodiscard]] double at(Index row, Index col) const {
    const std::uint64_t word = bits(row, col);
    if (is_16bit(dtype))
      return static_cast<double>(from_word(dtype, static_cast<std::uint16_t>(word)));
    if (dtype == DType::f32)
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
    return std::bit_cast<double>(word);
  }
  /// Elements that still hold this rank's poison.
  [[nodiscard]] Index count_poison() const {
    Index count = 0;
    for (Index r = 0; r < shape.rows(); ++r)
      for (Index c = 0; c < shape.cols(); ++c) count += bits(r, c) == poison ? 1 : 0;
    return count;
  }

 private:
  [[nodiscard]] std::uint64_t made_bits(Index row, Index col) const {
    for (const Piece& p : made) {
      if (row < p.row || row >= p.row + p.rows || columns_inside(p, col, 1).second == 0) continue;
      float v = 0;
      if (!is_zeros(p.tensor))
        WeightGenerator(values, *p.tensor)
            .row(p.src_row + (row - p.row) * p.src_stride)
            .fill(p.src_col + col - p.col, 1, &v);
      if (is_16bit(dtype)) return to_word(dtype, v);
      return dtype == DType::f32 ? std::bit_cast<std::uint32_t>(v)
                                 : std::bit_cast<std::uint64_t>(static_cast<double>(v));
    }
    return poison;
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

/// A parameter of this shape in which nothing was written: all of it is the rank's poison.
[[nodiscard]] inline Param poisoned(Shape shape, DType dtype, int tp_rank) {
  Param p;
  p.shape = shape, p.dtype = dtype, p.poison = poison_bits(dtype, tp_rank);
  return p;
}

}  // namespace tpsim::eigen
