// SPDX-License-Identifier: MIT
// Numbers of a configuration in the labels of values.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace tpsim::detail {

/// A short text that reads back as the same number: "1e-06", "500000".
[[nodiscard]] inline std::string exact_text(double value) {
  constexpr double most = 1e15;  // every integer below is a double
  if (value == std::floor(value) && std::abs(value) < most)
    return std::to_string(static_cast<long long>(value));
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

}  // namespace tpsim::detail
