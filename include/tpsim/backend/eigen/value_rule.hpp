// SPDX-License-Identifier: MIT
// Numbers for tensors that have none: a function of the seed, the logical tensor and the place.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <tpsim/backend/simd/random_rows.hpp>
#include <tpsim/core/random.hpp>
#include <tpsim/layout/full_tensor.hpp>

namespace tpsim::eigen {

/// Sizes of integer data: activations in [-x, x] and weights in [-w, w], without 0 (a dropped
/// product must show), except that only every `x_stride`-th activation of a token is non-zero.
struct IntegerRange {
  int x = 3, w = 3;
  Index x_stride = 1;
  /// The largest |sum| that `in` products and one bias can reach, in any order and any part.
  [[nodiscard]] constexpr Index largest_sum(Index in) const {
    return (in + x_stride - 1) / x_stride * x * w + w;
  }
};

/// The integers up to here are exact in the type: 2^53, 2^24, 2^8, 2^11.
[[nodiscard]] constexpr Index exact_integers(DType t) {
  switch (t) {
    case DType::f64:
      return Index{1} << 53;
    case DType::f32:
      return Index{1} << 24;
    case DType::bf16:
      return Index{1} << 8;
    case DType::f16:
      return Index{1} << 11;
    default:
      return 0;
  }
}

/// The widest range for which a linear layer with `in` columns makes the same bits in any order:
/// no partial sum leaves the exact integers. Long sums use activations +-1, then weights +-1, then
/// zeros in between (bf16 has 255 products to spend; token t has its first at column
/// -t mod x_stride, so that x_stride tokens together touch every column).
[[nodiscard]] constexpr IntegerRange integer_range(DType t, Index in) {
  const Index limit = exact_integers(t);
  IntegerRange range;
  for (const auto& [x, w] : {std::pair{3, 3}, {1, 3}, {1, 1}}) {
    range = {x, w, 1};
    if (range.largest_sum(in) <= limit) return range;
  }
  range.x_stride = (in + limit - 2) / std::max<Index>(limit - 1, 1);
  return range;
}

enum class ValueKind : std::uint8_t {
  normalish,  ///< uniform in [-1, 1), weights divided by sqrt(columns): outputs of size about 1
  integer     ///< small integers, see IntegerRange
};

/// How missing numbers are made. All are exact in f32, so every backend starts from the same.
struct ValueRule {
  ValueKind kind = ValueKind::normalish;
  std::uint64_t seed = 1;
  IntegerRange range = {};
};

/// One row of a tensor, ready to be generated from any column.
class RowGenerator {
 public:
  /// Token `row` of the activation called `name`.
  [[nodiscard]] static RowGenerator of_activation(const ValueRule& rule, std::string_view name,
                                                  Index row) {
    return {rule.kind,          tensor_key(rule.seed, hash_name(name)), row, 1.0, rule.range.x,
            rule.range.x_stride};
  }

  /// Columns [col, col + n).
  void fill(Index col, Index n, float* out) const {
    if (kind_ == ValueKind::normalish) return random_rows::fill_uniform(key_, col, n, factor_, out);
    random_rows::fill_integers(key_, col, n, magnitude_, out);
    if (stride_ > 1)
      for (Index i = 0; i < n; ++i)
        if ((row_ + col + i) % stride_ != 0) out[i] = 0;
  }

 private:
  friend class WeightGenerator;
  RowGenerator(ValueKind kind, std::uint64_t tensor, Index row, double scale, int magnitude,
               Index stride)
      : kind_(kind),
        key_(row_key(tensor, row)),
        row_(row),
        factor_(static_cast<float>(scale) * 0x1p-23F),
        magnitude_(magnitude),
        stride_(stride) {}

  ValueKind kind_;
  std::uint64_t key_;
  Index row_;
  float factor_;
  int magnitude_;
  Index stride_;
};

/// A weight [out, in] or a bias [out], ready to be generated row by row.
class WeightGenerator {
 public:
  WeightGenerator(const ValueRule& rule, const LogicalTensor& t)
      : kind_(rule.kind),
        key_(tensor_key(rule.seed, t.key)),
        scale_(t.shape.rank() == 1 ? 1 : 1 / std::sqrt(static_cast<double>(t.shape.cols()))),
        magnitude_(rule.range.w) {}
  [[nodiscard]] RowGenerator row(Index row) const {
    return {kind_, key_, row, scale_, magnitude_, 1};
  }

 private:
  ValueKind kind_;
  std::uint64_t key_;
  double scale_;
  int magnitude_;
};

}  // namespace tpsim::eigen
