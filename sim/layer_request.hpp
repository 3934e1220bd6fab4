// SPDX-License-Identifier: MIT
// The request of a layer check, from its options.
#pragma once

#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// @throws UsageError, LayoutError
[[nodiscard]] LayerRequest parse_layer(const Given& given, RankWorld* world = nullptr);

}  // namespace tpsim::cli
