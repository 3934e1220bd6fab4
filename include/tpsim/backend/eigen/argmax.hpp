// SPDX-License-Identifier: MIT
// The greatest of several columns in the numeric backend. Values and ids are wide: an id that is
// rounded to 16 bits is another token.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// A value and its id, and how far the exact ones may be from them.
template <class Real>
struct Pair {
  Real value = -std::numeric_limits<Real>::infinity();
  Real id = static_cast<Real>(no_choice);
  double value_bound = 0, id_bound = 0;

  [[nodiscard]] bool is_empty() const { return id == static_cast<Real>(no_choice); }
  [[nodiscard]] bool beats(const Pair& other) const {
    const bool nan = std::isnan(value), its_nan = std::isnan(other.value);
    if (nan != its_nan) return nan;
    return value > other.value || ((nan || value == other.value) && id < other.id);
  }
};

/// The best pair, and its bounds. With v*, e* those of the best and v_j, e_j of the others, the
/// exact maximum lies between v* - e* and the largest v_j + e_j; the exact choice is one whose
/// v_j + e_j reaches v* - e*, so the id is off by at most the largest |id_j - id*| + its own bound
/// among those. 2^-50 |v_j| is for the additions here. Of a value that is not finite nothing is
/// known.
template <class Real>
[[nodiscard]] Pair<Real> best_pair(const std::vector<Pair<Real>>& pairs, bool track) {
  Pair<Real> best;
  for (const Pair<Real>& p : pairs)
    if (p.beats(best)) best = p;
  if (!track || best.is_empty()) return best;
  const double infinity = std::numeric_limits<double>::infinity();
  const double v = static_cast<double>(best.value);
  if (!std::isfinite(v + best.value_bound)) {
    best.value_bound = best.id_bound = infinity;
    return best;
  }
  const double least = v - best.value_bound - 0x1p-50 * std::abs(v);
  double highest = v + best.value_bound, id_bound = best.id_bound;
  for (const Pair<Real>& p : pairs) {
    if (p.is_empty()) continue;
    const double one = static_cast<double>(p.value);
    const double reach = one + p.value_bound + 0x1p-50 * std::abs(one);
    if (!(reach >= least)) continue;
    highest = std::max(highest, reach);
    id_bound = std::max(
        id_bound, std::abs(static_cast<double>(p.id) - static_cast<double>(best.id)) + p.id_bound);
  }
  best.value_bound = (highest - v) * (1 + 0x1p-40);
  best.id_bound = id_bound;
  return best;
}

/// x [tokens, n] -> [tokens, 2], wide; best_pair() has the bound. @throws LayoutError (names)
template <class Real>
[[nodiscard]] Tensor<Real> largest(const Precision<Real>& p, const Tensor<Real>& x,
                                   Index first_id) {
  require_ids_exact(first_id, x.value.cols());
  Tensor<Real> out = p.make(x.value.rows(), 2, true);
  std::vector<Pair<Real>> pairs(static_cast<std::size_t>(x.value.cols()));
  for (Index t = 0; t < x.value.rows(); ++t) {
    for (Index c = 0; c < x.value.cols(); ++c)
      pairs[static_cast<std::size_t>(c)] = {x.value(t, c), static_cast<Real>(first_id + c),
                                            x.bound_at(t, c), 0};
    const Pair<Real> best = best_pair(pairs, p.track_bounds);
    out.value(t, 0) = best.value, out.value(t, 1) = best.id;
    if (p.track_bounds) out.bound(t, 0) = best.value_bound, out.bound(t, 1) = best.id_bound;
  }
  return out;
}

/// pairs [tokens, 2 k] -> [tokens, 1], wide; best_pair() has the bound.
/// @throws LayoutError (divide)
template <class Real>
[[nodiscard]] Tensor<Real> best_of(const Precision<Real>& p, const Tensor<Real>& x) {
  const Index n = require_pairs(shape_of(x));
  Tensor<Real> out = p.make(x.value.rows(), 1, true);
  std::vector<Pair<Real>> pairs(static_cast<std::size_t>(n));
  for (Index t = 0; t < x.value.rows(); ++t) {
    for (Index k = 0; k < n; ++k)
      pairs[static_cast<std::size_t>(k)] = {x.value(t, 2 * k), x.value(t, 2 * k + 1),
                                            x.bound_at(t, 2 * k), x.bound_at(t, 2 * k + 1)};
    const Pair<Real> best = best_pair(pairs, p.track_bounds);
    out.value(t, 0) = best.id;
    if (p.track_bounds) out.bound(t, 0) = best.id_bound;
  }
  return out;
}

}  // namespace tpsim::eigen
