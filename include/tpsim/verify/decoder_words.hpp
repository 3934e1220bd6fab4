// SPDX-License-Identifier: MIT
// What a decoder's choices are called in commands and reports.
#pragma once

#include <array>
#include <string_view>

#include <tpsim/layers/decoder_options.hpp>

namespace tpsim {

[[nodiscard]] constexpr std::string_view name(QkNorm norm) {
  constexpr std::array<std::string_view, 3> names{"none", "head", "full"};
  return names[static_cast<std::size_t>(norm)];
}
[[nodiscard]] constexpr std::string_view name(NormKind norm) {
  constexpr std::array<std::string_view, 3> names{"rms", "layer", "layer_without_bias"};
  return names[static_cast<std::size_t>(norm)];
}
[[nodiscard]] constexpr std::string_view name(Activation f) {
  constexpr std::array<std::string_view, 3> names{"silu", "gelu", "gelu_tanh"};
  return names[static_cast<std::size_t>(f)];
}

}  // namespace tpsim
