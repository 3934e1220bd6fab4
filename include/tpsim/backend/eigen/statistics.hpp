// SPDX-License-Identifier: MIT
// Sums and sums of squares along rows, and the norms that are made of them. Statistics are wide:
// engines keep and exchange them in fp32, whatever the model's type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/eigen/lanes.hpp>
#include <tpsim/backend/eigen/parallel.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// For each group of columns a sum in double of term(element), rounded once to Real, wide.
/// Error: the sum of spread(|element|, e_x), lane_error(n) for the sum of n terms of the sizes that
/// size(term) gives, and the rounding of the result. @throws LayoutError (heads)
template <class Real, class Term, class Spread>
[[nodiscard]] Tensor<Real> row_sums(const Precision<Real>& p, const Tensor<Real>& x, Index group,
                                    const Term& term, const Spread& spread) {
  const Index groups = statistics_groups(x.value.cols(), group), n = x.value.cols() / groups;
  Tensor<Real> out = p.make(x.value.rows(), groups, true);
  parallel_for(x.value.rows(), x.value.size() > 1 << 14, [&](Index t) {
    for (Index g = 0; g < groups; ++g) {
      const Real* row = x.value.data() + t * x.value.cols() + g * n;
      out.value(t, g) = static_cast<Real>(
          lane_sum(n, [&](Index i) { return term(static_cast<double>(row[i])); }));
      if (!p.track_bounds) continue;
      const double unit = lane_error(n);
      out.bound(t, g) = lane_sum(n, [&](Index i) {
        const double v = std::abs(static_cast<double>(row[i]));
        return spread(v, x.bound_at(t, g * n + i)) + unit * term(v);
      });
    }
  });
  return p.finish(std::move(out), p.operation(true));
}

/// Sums of `group` columns each. Error: the sum of e_x; see row_sums().
template <class Real>
[[nodiscard]] Tensor<Real> column_sums(const Precision<Real>& p, const Tensor<Real>& x,
                                       Index group) {
  return row_sums(
      p, x, group, [](double v) { return v; }, [](double /*v*/, double e) { return e; });
}
/// Sums of the squares of `group` columns each. Error: the sum of 2 |x| e_x + e_x^2; see
/// row_sums().
template <class Real>
[[nodiscard]] Tensor<Real> square_sums(const Precision<Real>& p, const Tensor<Real>& x,
                                       Index group) {
  return row_sums(
      p, x, group, [](double v) { return v * v; },
      [](double v, double e) { return (2 * v + e) * e; });
}

/// x - sums / count, wide: the layer norms of engines round only once, at their end.
/// Error: e_x + e_sums / count, 2^-52 |sums / count|, and the rounding of the result to Real.
/// @throws LayoutError (heads)
template <class Real>
[[nodiscard]] Tensor<Real> centered(const Precision<Real>& p, const Tensor<Real>& x,
                                    const Tensor<Real>& sums, Index count) {
  const Index n = require_statistics_fit(shape_of(x), shape_of(sums));
  const double size = static_cast<double>(count);
  Tensor<Real> out = x;
  out.wide = true;
  p.ensure_bound(out);
  for (Index t = 0; t < x.value.rows(); ++t)
    for (Index g = 0; g < sums.value.cols(); ++g) {
      const double mean = static_cast<double>(sums.value(t, g)) / size;
      const double error = sums.bound_at(t, g) / size + 0x1p-52 * std::abs(mean);
      for (Index c = g * n; c < (g + 1) * n; ++c) {
        out.value(t, c) = static_cast<Real>(static_cast<double>(x.value(t, c)) - mean);
        if (p.track_bounds) out.bound(t, c) += error;
      }
    }
  return p.finish(std::move(out), p.operation_in_double(true, 0x1p-53));
}

/// How far 1 / sqrt(m + eps) may be from it, relatively, when the mean square m is known within e:
/// the exact one is at least m - e and never negative, and the root is largest there; infinite when
/// that leaves 0.
[[nodiscard]] inline double inverse_root_error(double m, double e, double eps) {
  const double relative = std::min(e, m) / (m + eps) * (1 + 0x1p-40);
  if (!(relative < 1)) return std::numeric_limits<double>::infinity();
  return std::expm1(-0.5 * std::log1p(-relative));  // (1 - relative)^(-1/2) - 1
}

/// x / sqrt(square_sums / count + eps), in double, rounded once to the rule (RMSNorm as in
/// transformers `LlamaRMSNorm`: the weight multiplies what was rounded). `eps` counts as exact.
/// Error: with r the computed inverse root and d its inverse_root_error(), e_x r (1 + d) + |x| r d;
/// 2^-50 for quotient, sum, root and products; and the rounding of the result.
/// @throws LayoutError (heads)
template <class Real>
[[nodiscard]] Tensor<Real> rms_normalized(const Precision<Real>& p, const Tensor<Real>& x,
                                          const Tensor<Real>& square_sums, Index count,
                                          double eps) {
  const Index n = require_statistics_fit(shape_of(x), shape_of(square_sums));
  const double size = static_cast<double>(count);
  Tensor<Real> out = x;
  out.wide = false;
  p.ensure_bound(out);
  parallel_for(x.value.rows(), x.value.size() > 1 << 14, [&](Index t) {
    for (Index g = 0; g < square_sums.value.cols(); ++g) {
      const double mean = static_cast<double>(square_sums.value(t, g)) / size;
      const double r = 1 / std::sqrt(mean + eps);
      const double d =
          p.track_bounds ? inverse_root_error(mean, square_sums.bound_at(t, g) / size, eps) : 0;
      for (Index c = g * n; c < (g + 1) * n; ++c) {
        const double v = static_cast<double>(x.value(t, c));
        out.value(t, c) = static_cast<Real>(v * r);
        // an exact 0 stays 0, however little is known of the root
        if (!p.track_bounds) continue;
        const double e = out.bound(t, c);
        out.bound(t, c) = (e > 0 ? e * r * (1 + d) : 0) + (v != 0 ? std::abs(v) * r * d : 0);
      }
    }
  });
  return p.finish(std::move(out), p.operation_in_double(false, 0x1p-50));
}

}  // namespace tpsim::eigen
