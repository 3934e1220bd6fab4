// SPDX-License-Identifier: MIT
// How the linear weights of a checkpoint are quantised, and what may not be cut in two.
#pragma once

#include <cstdint>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim {

enum class QuantMethod : std::uint8_t { none, gptq, awq, fp8, mxfp4 };

[[nodiscard]] constexpr std::string_view name(QuantMethod method) {
  constexpr std::array<std::string_view, 5> names{"none", "gptq", "awq", "fp8", "mxfp4"};
  return names[static_cast<std::size_t>(method)];
}

/// `quantization_config` of a config.json. A weight is [out, in].
struct Quantization {
  QuantMethod method = QuantMethod::none;
  Index bits = 0;          ///< gptq, awq: of one weight, 2 to 8
  Index group_size = 0;    ///< gptq, awq: input columns that share a scale; 0: a whole row does
  Index block_n = 0;       ///< fp8: output rows of a block, 0 when the tensor has one scale
  Index block_k = 0;       ///< fp8: input columns of a block
  bool act_order = false;  ///< gptq: `desc_act`, the columns of a group lie anywhere

  /// gptq, awq: output rows whose zero points one 32-bit word holds, so that a rank needs all of
  /// them. An odd width spreads 32 rows over `bits` words.
  [[nodiscard]] constexpr Index pack_factor() const {
    return bits == 0 ? 1 : 32 % bits == 0 ? 32 / bits : 32;
  }
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// mxfp4: columns that share a scale.
inline constexpr Index mxfp4_block = 32;

}  // namespace tpsim
