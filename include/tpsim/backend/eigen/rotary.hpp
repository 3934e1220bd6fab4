// SPDX-License-Identifier: MIT
// Rotary positions: every head of a token turned by the token's angles.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/eigen/parallel.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// The columns of a head turned in pairs, in double, and rounded once; the other columns exact.
/// "Exact" takes the frequencies and the magnitude m as rope_spec.hpp has them, in double.
/// Error of a pair (x, y) at angle a: m (|cos a| e_x + |sin a| e_y) and the like for the other;
/// m (|x| + |y|) (|a| 2^-53 + 2^-50) for the angle, cos and sin (under one ulp in glibc), m, the
/// products and their sum; and the rounding of the result.
/// @throws LayoutError (heads)
template <class Real>
[[nodiscard]] Tensor<Real> rope(const Precision<Real>& p, const Tensor<Real>& x,
                                const std::vector<Index>& positions, Index head_dim,
                                const RopeSpec& spec) {
  require_rope_fits(shape_of(x), positions, head_dim, spec);
  const std::vector<double> frequencies = rope_frequencies(spec);
  const double magnitude = rope_magnitude(spec);
  const Index heads = x.value.cols() / head_dim;
  Tensor<Real> out = x;
  out.wide = false;
  p.ensure_bound(out);
  parallel_for(x.value.rows(), x.value.size() > 1 << 12, [&](Index t) {
    struct Turn {
      RopePair at;
      double cos, sin, error;
    };
    std::vector<Turn> turns;  // of every head of this token
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
      const double angle =
          static_cast<double>(positions[static_cast<std::size_t>(t)]) * frequencies[j];
      turns.push_back({rope_pair(spec, static_cast<Index>(j)), magnitude * std::cos(angle),
                       magnitude * std::sin(angle),
                       magnitude * (std::abs(angle) * 0x1p-53 + 0x1p-50)});
    }
    for (Index h = 0; h < heads; ++h) {
      Real* head = out.value.data() + t * x.value.cols() + h * head_dim;
      double* error =
          p.track_bounds ? out.bound.data() + t * x.value.cols() + h * head_dim : nullptr;
      for (const Turn& turn : turns) {
        const auto a = static_cast<double>(head[turn.at.first]);
        const auto b = static_cast<double>(head[turn.at.second]);
        head[turn.at.first] = static_cast<Real>(a * turn.cos - b * turn.sin);
        head[turn.at.second] = static_cast<Real>(b * turn.cos + a * turn.sin);
        if (error == nullptr) continue;
        const double ea = error[turn.at.first], eb = error[turn.at.second];
        const double own = (std::abs(a) + std::abs(b) + ea + eb) * turn.error;
        const double c = std::abs(turn.cos), s = std::abs(turn.sin);
        error[turn.at.first] = c * ea + s * eb + own;
        error[turn.at.second] = c * eb + s * ea + own;
      }
    }
  });
  // Columns that stay are not rounded again, unless they were wide.
  Tensor<Real> y = p.finish(std::move(out), p.operation());
  if (p.track_bounds && (!x.wide || !p.is_rounded()))
    for (Index h = 0; h < heads; ++h)
      for (Index c = h * head_dim + spec.rotary_dim; c < (h + 1) * head_dim; ++c)
        for (Index t = 0; t < y.bound.rows(); ++t) y.bound(t, c) = x.bound_at(t, c);
  return y;
}

}  // namespace tpsim::eigen
