// SPDX-License-Identifier: MIT
// The sizes of a model with experts, from the config.json of a Hugging Face checkpoint.
#include <tpsim/checkpoint/moe_config.hpp>

#include <algorithm>

#include "config_dtype.hpp"
#include "quantization_config.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

constexpr Index max_experts = 1 << 16;

void read_heads(ConfigReader& in, MoeConfig& config) {
  config.num_attention_heads = in.size("num_attention_heads", true);
  config.num_key_value_heads = in.size("num_key_value_heads", false);
  config.head_dim = in.size("head_dim", false);
  const Index heads = config.num_attention_heads;
  if (heads == 0) return;
  if (!in.has("num_key_value_heads")) config.num_key_value_heads = heads;
  const Index kv_heads = config.num_key_value_heads;
  if (kv_heads > 0 && heads % kv_heads != 0)
    in.problem(fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}", heads,
                           kv_heads));
  if (!in.has("head_dim") && config.hidden_size > 0) {
    if (config.hidden_size % heads != 0)
      in.problem(
          fmt::format("head_dim is missing, and hidden_size {} does not divide by "
                      "num_attention_heads {}",
                      config.hidden_size, heads));
    config.head_dim = config.hidden_size / heads;
  }
  if (heads * config.head_dim > max_size)
    in.problem(fmt::format("num_attention_heads {} times head_dim {} is over {}", heads,
                           config.head_dim, max_size));
}

// Biases as transformers builds each architecture; a key that contradicts it is refused, because
// engines differ in which of the two they believe.
void read_biases(ConfigReader& in, MoeConfig& config) {
  const std::string& type = config.model_type;
  config.mlp_bias = type == "gpt_oss";
  config.attention_bias = in.flag("attention_bias", type == "gpt_oss");
  if (type == "gpt_oss" && !config.attention_bias)
    in.problem("attention_bias is false, but gpt_oss always has q, k, v and o biases");
  if (type == "mixtral" && config.attention_bias)
    in.problem("attention_bias is true, but mixtral has no biases");
  if (type != "gpt_oss" && in.flag("mlp_bias", false))
    in.problem(fmt::format("mlp_bias is true, but {} has no MLP biases", type));
}

// A layer has experts when (i + 1) divides by decoder_sparse_step and i is not in mlp_only_layers.
// Source: vLLM models/qwen3_moe.py.
Index dense_layers(ConfigReader& in, Index layers) {
  Index step = in.size("decoder_sparse_step", false, max_layers);
  if (step == 0) step = 1;
  std::vector<bool> dense(static_cast<std::size_t>(layers), false);
  for (Index i = 0; i < layers; ++i) dense[static_cast<std::size_t>(i)] = (i + 1) % step != 0;
  if (const nlohmann::json* only = in.list("mlp_only_layers"))
    for (const nlohmann::json& layer : *only) {
      if (!layer.is_number_unsigned() ||
          layer.get<std::uint64_t>() >= static_cast<std::uint64_t>(layers)) {
        in.problem(fmt::format("mlp_only_layers has an entry that is no layer; legal: 0 to {}",
                               layers - 1));
        break;
      }
      dense[layer.get<std::size_t>()] = true;
    }
  return std::count(dense.begin(), dense.end(), true);
}

void read_experts(ConfigReader& in, MoeConfig& config) {
  const bool qwen = config.model_type == "qwen3_moe";
  config.experts = in.size(qwen ? "num_experts" : "num_local_experts", true, max_experts);
  config.expert_intermediate =
      qwen ? in.size("moe_intermediate_size", true) : config.intermediate_size;
  if (qwen) config.dense_layers = dense_layers(in, config.num_hidden_layers);
  config.experts_per_token = in.size("num_experts_per_tok", false, max_experts);
  // As transformers' config classes have it.
  if (!in.has("num_experts_per_tok"))
    config.experts_per_token =
        std::min<Index>(config.experts, qwen                             ? 8
                                        : config.model_type == "mixtral" ? 2
                                                                         : 4);
  if (config.experts > 0 && config.experts_per_token > config.experts)
    in.problem(fmt::format("num_experts_per_tok {} is over the {} experts",
                           config.experts_per_token, config.experts));
}

}  // namespace

const std::vector<std::string>& moe_model_types() {
  static const std::vector<std::string> all{"gpt_oss", "mixtral", "qwen3_moe"};
  return all;
}

std::optional<MoeConfig> parse_moe_config(std::string_view json, const std::string& file_name) {
  const nlohmann::json parsed = parse_strict_json(json, file_name);
  const auto type = parsed.find("model_type");
  const std::vector<std::string>& known = moe_model_types();
  if (type == parsed.end() || !type->is_string() ||
      std::find(known.begin(), known.end(), type->get<std::string>()) == known.end())
    return std::nullopt;
  Problems problems;
  ConfigReader in(parsed, problems);
  MoeConfig config;
  config.model_type = type->get<std::string>();
  config.hidden_size = in.size("hidden_size", true);
  read_heads(in, config);
  config.intermediate_size = in.size("intermediate_size", true);
  config.num_hidden_layers = in.size("num_hidden_layers", true, max_layers);
  config.vocab_size = in.size("vocab_size", true);
  read_biases(in, config);
  config.tie_word_embeddings = in.flag("tie_word_embeddings", false);
  ConfigEvaluator evaluator(parsed, problems);
  config.dtype = read_config_dtype(evaluator);
  read_experts(in, config);
  config.quantization = read_quantization(in, problems);
  problems.throw_if_any("cannot use " + shown(file_name));
  return config;
}

}  // namespace tpsim
