// SPDX-License-Identifier: MIT
#include "rope_config.hpp"

#include <algorithm>
#include <cmath>

namespace tpsim::checkpoint_detail {
namespace {

/// `rope_scaling`, or `rope_parameters`, or null.
const nlohmann::json* scaling_object(const nlohmann::json& config, ConfigEvaluator& in) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const nlohmann::json* value = in.find(key);
    if (value == nullptr) continue;
    if (value->is_object()) return value;
    in.problem(fmt::format("{} must be an object", key));
  }
  (void)config;
  return nullptr;
}

std::string type_of(ConfigEvaluator& scaling) {
  if (scaling.find("rope_type") != nullptr) return scaling.word("rope_type", "rope scaling", {});
  return scaling.word("type else default", "rope scaling", {"default"});
}

/// How much longer the cos and sin of yarn are. Source: DeepSeek's mscale.
double mscale(double factor, double m) { return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1; }

void read_yarn(ConfigEvaluator& in, std::optional<Index> positions, RopeSpec& rope) {
  rope.beta_fast = in.number("beta_fast else 32", "rope scaling");
  rope.beta_slow = in.number("beta_slow else 1", "rope scaling");
  if (in.find("truncate") != nullptr && !in.flag("truncate", "rope scaling"))
    in.problem("truncate is false; yarn is supported with truncated bounds alone");
  if (in.find("attention_factor") != nullptr)
    rope.attention_factor = in.number("attention_factor", "rope scaling");
  else if (in.find("mscale") != nullptr && in.find("mscale_all_dim") != nullptr)
    rope.attention_factor = mscale(rope.factor, in.number("mscale", "rope scaling")) /
                            mscale(rope.factor, in.number("mscale_all_dim", "rope scaling"));
  if (in.find("original_max_position_embeddings") == nullptr && positions)
    rope.original_positions = *positions;
  else
    rope.original_positions = in.size("original_max_position_embeddings", "rope scaling");
}

void read_scaling(ConfigEvaluator& in, const std::string& type, std::optional<Index> positions,
                  RopeSpec& rope) {
  rope.factor = in.number("factor", "rope scaling");
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.low_freq_factor = in.number("low_freq_factor", "rope scaling");
    rope.high_freq_factor = in.number("high_freq_factor", "rope scaling");
    rope.original_positions = in.size("original_max_position_embeddings", "rope scaling");
  } else {
    rope.scaling = RopeScaling::yarn;
    read_yarn(in, positions, rope);
  }
}

}  // namespace

nlohmann::json with_rope_parameters(const nlohmann::json& config, Problems& problems) {
  nlohmann::json out = config;
  const auto it = config.find("rope_parameters");
  if (it == config.end() || !it->is_object()) return out;
  for (const auto& [key, value] : it->items()) {
    if (value.is_object())
      problems.add("config", "rope_parameters " + shown(key) +
                                 " is an object; rotary positions that differ by layer are not "
                                 "supported");
    else if (const auto known = config.find(key);
             known != config.end() && !known->is_null() && *known != value)
      problems.add("config", fmt::format("{} contradicts rope_parameters", shown(key)));
    else
      out[key] = value;
  }
  return out;
}

RopeSpec read_rope(const nlohmann::json& config, ConfigEvaluator& in, const RopeRule& rule,
                   Index head_dim, std::optional<Index> positions, Problems& problems,
                   std::vector<std::string>& notes) {
  RopeSpec rope;
  rope.style = rule.style;
  rope.theta = in.number(rule.theta, "rope theta");
  const double part = in.number(rule.part, "the rotary part of a head");
  if (part > 0 && part <= 1)
    rope.rotary_dim = static_cast<Index>(static_cast<double>(head_dim) * part);
  else
    in.problem(fmt::format("the rotary part of a head ({}) is {}; legal: over 0 up to 1", rule.part,
                           part));
  if (const nlohmann::json* object = scaling_object(config, in)) {
    ConfigEvaluator scaling(*object, problems);
    const std::string type = type_of(scaling);
    const bool known =
        std::find(rule.scaling.begin(), rule.scaling.end(), type) != rule.scaling.end();
    if (type == "default" || type.empty()) {  // nothing to scale, or told already
    } else if (!known) {
      in.problem(fmt::format("rope scaling {} is not supported here; supported: {}", shown(type),
                             rule.scaling.empty()
                                 ? "default"
                                 : fmt::format("default, {}", fmt::join(rule.scaling, ", "))));
    } else if (type == "dynamic") {
      if (!positions)
        in.problem("rope scaling 'dynamic' needs max_position_embeddings");
      else
        notes.push_back(fmt::format(
            "rope scaling 'dynamic' begins beyond {} positions, and longer sequences are refused",
            *positions));
    } else {
      read_scaling(scaling, type, positions, rope);
    }
  }
  if (rope.rotary_dim > 0 && head_dim > 0)
    for (const Violation& v : rope_violations(rope, head_dim)) in.problem(v.message);
  return rope;
}

}  // namespace tpsim::checkpoint_detail
