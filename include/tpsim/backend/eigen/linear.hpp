// SPDX-License-Identifier: MIT
// x w^T with its running bound.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <tpsim/backend/eigen/precision.hpp>
#include <tpsim/backend/eigen/weight_rows.hpp>

namespace tpsim::eigen {

/// x [tokens, in], w [out, in] -> x w^T [tokens, out].
/// Error of an output: for each block of n <= 256 columns (n + 2) u (|x| |w|^T), which holds for
/// any order inside the block and with or without fused operations; u |sum| for each added
/// block; bound_x |w|^T; 2^-149 for each product that may underflow; the rounding to the rule.
/// In double, whose bounds are 2^-29 of those in f32, the blocks' norms stand for |x| |w|^T.
/// @throws LayoutError (state)
template <class Real>
[[nodiscard]] Tensor<Real> linear(const Precision<Real>& p, const Tensor<Real>& x, const Param& w) {
  const Index tokens = x.value.rows(), in = x.value.cols();
  if (w.shape.cols() != in || w.shape.rank() != 2)
    throw LayoutError(
        "linear cannot multiply " + shape_of(x).str() + " by a weight " + w.shape.str(),
        {{"state", "x has " + std::to_string(in) + " columns, the weight " +
                       std::to_string(w.shape.cols())}});
  Tensor<Real> y;
  y.value.resize(tokens, w.shape.rows());
  const PackedTokens<Real> packed(tokens, in, [&](Index t, Index k) { return x.value(t, k); });
  const auto rows = weight_rows<Real>(w);
  if (!p.track_bounds) {
    tiled_product<Real>(packed, nullptr, in, rows, 0, 0, y.value, nullptr);
  } else {
    const Rounding own = rounding_of(p.own_type);
    const double nu = static_cast<double>(std::min(in, kBlock) + 2) * own.unit;
    // |x| + bound_x / (n u) carries both terms through one product; rounded up to Real
    const auto size = [&](Index t, Index k) {
      const double c = std::abs(static_cast<double>(x.value(t, k))) + x.bound_at(t, k) / nu;
      return static_cast<Real>(c) * (1 + 4 * static_cast<Real>(own.unit)) +
             std::numeric_limits<Real>::denorm_min();
    };
    y.bound.resize(tokens, w.shape.rows());
    if constexpr (std::is_same_v<Real, double>) {
      // (1 + 8 nu): both sums of squares, their roots and the product are computed in double
      const PackedTokens<Real> norms(tokens, (in + kBlock - 1) / kBlock, [&](Index t, Index block) {
        double sum = std::numeric_limits<double>::min();  // squares may underflow
        for (Index k = block * kBlock; k < std::min(in, (block + 1) * kBlock); ++k)
          sum += size(t, k) * size(t, k);
        return std::sqrt(sum);
      });
      tiled_product<Real>(packed, &norms, in, rows, own.unit, nu * (1 + 8 * nu), y.value, &y.bound,
                          Magnitudes::norms);
    } else {
      const PackedTokens<Real> spread(tokens, in, size);
      // 1 + 2 nu: the product of absolute values is itself computed in Real
      tiled_product<Real>(packed, &spread, in, rows, own.unit, nu * (1 + 2 * nu), y.value,
                          &y.bound);
    }
    y.bound.array() += static_cast<double>(in) * 2 * own.eta;
  }
  return p.finish(std::move(y), p.is_rounded() ? rounding_of(p.rule) : Rounding{});
}

}  // namespace tpsim::eigen
