// SPDX-License-Identifier: MIT
// Plans of whole models: what a config.json and a checkpoint of one architecture mean, as data.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/backend/rope_spec.hpp>
#include <tpsim/core/error.hpp>

namespace tpsim {

/// One tensor of the checkpoint, or one of every layer.
struct PlanRule {
  std::string name;  ///< "self_attn.q_proj.weight": what follows the layer's prefix
  std::string rows;  ///< order on disk: "q:kv*g*d", "kv*(q:g*d + k:d + v:d)"
  std::string cols;  ///< "H"; empty for a vector
  /// The layer that it fills: "self_attn.qkv_proj"; empty: the one that it is named after.
  std::string into;
  std::string style = "replicated";  ///< "column", "row"
  std::string cut;                   ///< "kv*g even"
  std::string when = "true";         ///< condition for the tensor to exist
  /// Condition for a bias beside it: NAME.bias, as long as its rows and cut like them.
  std::string bias = "false";
};

/// Rotary positions. `theta` and `part` are looked up in `rope_parameters` too.
struct RopeRule {
  std::string theta = "rope_theta else 10000";
  std::string part = "1";  ///< fraction of a head's columns that turn
  RopeStyle style = RopeStyle::half_split;
  /// Legal `rope_scaling` types, of linear, llama3, yarn and dynamic.
  std::vector<std::string> scaling{"linear", "llama3", "yarn", "dynamic"};
};

/// Which layers see a window of positions.
struct WindowRule {
  std::string size;           ///< a key whose value is null says: no window
  std::string when = "true";  ///< condition for any layer to have one
  std::string from = "0";     ///< first layer that has one
  std::string types;          ///< key of a list, "sliding_attention" or "full_attention" by layer
};

/// What the tensors do not tell.
struct DecoderRules {
  std::string layers, activation, eps;
  std::string positions;  ///< longest sequence; empty: any
  std::string norm = "rms";
  std::optional<RopeRule> rope;
  std::optional<WindowRule> window;
  std::string tied = "false", parallel_residual = "false", alibi = "false";
};

/// One architecture. Values and conditions are expressions over keys of config.json:
///
///     value  := choice ('else' choice)*       the first whose keys are all there, and not null
///     choice := factor (('*' | '/') factor)*  a quotient of sizes must be whole
///     factor := KEY | NUMBER | 'true' | 'false' | 'none'
///
/// KEY may be inside an object: `text_config.hidden_size`. A condition whose keys are absent is
/// false. The axes are H (hidden), V (vocabulary), i (intermediate), kv (kv heads), g (query heads
/// of each), d (head_dim), m (v head_dim, default d); h, all query heads, is kv*g, or stands alone
/// when every query head has a kv head of its own.
struct ModelPlan {
  std::string file;  ///< named in messages
  std::string architecture;
  std::vector<std::string> model_types;  ///< of the configs that it serves
  std::map<std::string, std::string> axes;
  /// Keys whose value, when they are there, must be this JSON text.
  std::map<std::string, std::string> expects;
  DecoderRules decoder;
  std::vector<PlanRule> model;       ///< embed_tokens, norm, lm_head
  std::string layer;                 ///< prefix of a layer's tensors: "model.layers.{}."
  std::vector<PlanRule> tensors;     ///< of every layer
  std::vector<std::string> ignored;  ///< names that mean nothing; {} is a layer
};

/// Reads a plan file and lints it. sim/plans/README.md describes the format.
/// @throws LayoutError with everything that is wrong: no JSON, keys that are missing, unknown or of
///   the wrong type, and what lint_plan finds
[[nodiscard]] ModelPlan parse_model_plan(std::string_view json, const std::string& file_name);
/// @throws LayoutError when the file cannot be read, or as parse_model_plan
[[nodiscard]] ModelPlan read_model_plan(const std::filesystem::path& file);

/// What is wrong with a plan whatever the config: axes that are undefined or in no tensor, rules
/// that match nothing, rows, columns and cuts that are not those of the layer they go into, tensors
/// without a rule, parameters that nothing fills, expressions that cannot be read. Empty: usable.
[[nodiscard]] std::vector<Violation> lint_plan(const ModelPlan& plan);

/// Built in, by architecture.
[[nodiscard]] const std::vector<ModelPlan>& built_in_plans();
/// The built-in plan that serves a model_type, or null.
[[nodiscard]] const ModelPlan* find_plan(std::string_view model_type);
/// The built-in plan for a config.json.
/// @throws LayoutError for an unknown model_type, with those that exist and the way to another
[[nodiscard]] const ModelPlan& plan_for(std::string_view config_json, const std::string& file_name);

}  // namespace tpsim
