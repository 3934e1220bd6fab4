// SPDX-License-Identifier: MIT
// What agreement of the exact reading is worth: the probability that a wrong stage passes.
#pragma once

#include <cmath>
#include <optional>

#include <tpsim/backend/field/gf61.hpp>

namespace tpsim {

/// One stage, both sides together. Counts and degrees fit a double: the bound is an estimate from
/// above of a power of two, not an integer.
struct StageDegrees {
  double calls = 0;            ///< N: oracle calls and comparisons of values
  double argument_degree = 0;  ///< d: largest degree of a difference of two oracle arguments
  double output_degree = 0;    ///< D: degree of the numerator of the difference of the outputs
};

/// log2 of kappa (N (N - 1) / 2 * d + D) / p, kappa = 9/8: how often at most one seed lets a stage
/// pass that differs from its reference as a rational function with uninterpreted oracles, when
/// the keyed hash behaves as a random function. k independent seeds: k times this. 0 or more
/// means that nothing can be claimed.
/// Source: Schwartz (1980) and Zippel (1979), in the order of evaluation; kappa is the bias of
/// gf61::reduce().
[[nodiscard]] inline double log2_miss_per_seed(const StageDegrees& s) {
  const double pairs = s.calls < 2 ? 0 : s.calls * (s.calls - 1) / 2;
  return std::log2(9.0 / 8.0 * (pairs * s.argument_degree + s.output_degree)) -
         std::log2(static_cast<double>(gf61::p));
}

/// The smallest number of seeds with a bound below 2^target, at least 1; nothing when one seed
/// proves nothing, because then no number of seeds does.
[[nodiscard]] inline std::optional<int> seeds_needed(const StageDegrees& s, double target = -60) {
  const double per_seed = log2_miss_per_seed(s);
  if (per_seed >= 0) return std::nullopt;
  if (std::isinf(per_seed)) return 1;
  int k = 1;
  while (k * per_seed >= target) ++k;
  return k;
}

}  // namespace tpsim
