// SPDX-License-Identifier: MIT
// Rotary positions of a config.json: base, part and scaling.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tpsim/checkpoint/model_plan.hpp>

#include "config_expression.hpp"

namespace tpsim::checkpoint_detail {

/// The config with the keys of `rope_parameters` (transformers 5) beside the others; a key that is
/// in both with two values is a problem.
[[nodiscard]] nlohmann::json with_rope_parameters(const nlohmann::json& config, Problems& problems);

/// @param config     as with_rope_parameters gives it
/// @param positions  max_position_embeddings, if any
/// @param notes      gets what a reader might not expect
/// Source: transformers `modeling_rope_utils.py` 4.57.
[[nodiscard]] RopeSpec read_rope(const nlohmann::json& config, ConfigEvaluator& in,
                                 const RopeRule& rule, Index head_dim,
                                 std::optional<Index> positions, Problems& problems,
                                 std::vector<std::string>& notes);

}  // namespace tpsim::checkpoint_detail
