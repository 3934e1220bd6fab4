// SPDX-License-Identifier: MIT
// Exact division: what every engine asserts before it cuts.
#pragma once

#include <string>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// The rule `divide` for one quantity, e.g. "32 query heads over 3 ranks leaves 2".
[[nodiscard]] inline Violation does_not_divide(Index count, std::string_view what, Index ranks) {
  return {"divide", std::to_string(count) + " " + std::string(what) + " over " +
                        std::to_string(ranks) + " ranks leaves " +
                        std::to_string(ranks == 0 ? count : count % ranks)};
}

/// numerator / denominator.
/// @throws LayoutError (divide) unless the division is exact and both are positive.
/// Source: nano-vllm `layers/linear.py` divide(), vLLM `distributed/utils.py` divide().
[[nodiscard]] inline Index divide(Index numerator, Index denominator,
                                  std::string_view what = "elements") {
  if (numerator <= 0 || denominator <= 0 || numerator % denominator != 0)
    throw LayoutError(std::to_string(numerator) + " " + std::string(what) +
                          " cannot be cut evenly into " + std::to_string(denominator),
                      {does_not_divide(numerator, what, denominator)});
  return numerator / denominator;
}

}  // namespace tpsim
