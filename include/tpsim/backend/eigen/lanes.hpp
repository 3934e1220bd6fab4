// SPDX-License-Identifier: MIT
// Sums along a row in a fixed order that vector units can follow.
#pragma once

#include <tpsim/core/shape.hpp>

namespace tpsim::eigen {

inline constexpr Index kLanes = 8;

/// term(0) + ... + term(n - 1) in double: term i is added to lane i mod 8, then the lanes pairwise.
/// The order depends on n alone.
template <class F>
[[nodiscard]] double lane_sum(Index n, const F& term) {
  double lane[kLanes] = {};
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (Index l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  for (Index l = 0; i + l < n; ++l) lane[l] += term(i + l);
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}
/// |lane_sum - exact| <= lane_error(n) sum |term|, terms that are one rounded product included.
[[nodiscard]] constexpr double lane_error(Index n) {
  return static_cast<double>(n / kLanes + 5) * 0x1p-53;
}

}  // namespace tpsim::eigen
