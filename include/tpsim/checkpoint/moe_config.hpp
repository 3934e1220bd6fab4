// SPDX-License-Identifier: MIT
// The sizes of models with experts, which no plan can describe yet: enough for tp rules and costs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/core/quantization.hpp>

namespace tpsim {

/// Sizes are at least 1 and small enough that no product of two weight dimensions overflows.
struct MoeConfig {
  std::string model_type;  ///< one of moe_model_types()
  Index hidden_size = 0;
  Index num_attention_heads = 0;
  Index num_key_value_heads = 0;  ///< divides num_attention_heads; default num_attention_heads
  Index head_dim = 0;  ///< default hidden_size / num_attention_heads; heads * head_dim need not be
                       ///< hidden_size
  Index intermediate_size = 0;
  Index num_hidden_layers = 0;
  Index vocab_size = 0;
  bool attention_bias = false;  ///< of q, k, v and o; always in gpt_oss, never in mixtral
  bool mlp_bias = false;        ///< of the router and the experts: gpt_oss
  bool tie_word_embeddings = false;
  std::optional<DType> dtype;     ///< `dtype`, or `torch_dtype` as older files call it
  Index experts = 0;              ///< of a layer
  Index expert_intermediate = 0;  ///< width of one expert
  Index experts_per_token = 0;    ///< that the router chooses
  Index dense_layers = 0;         ///< layers with a dense MLP instead
  Quantization quantization;      ///< `quantization_config`
};

[[nodiscard]] const std::vector<std::string>& moe_model_types();

/// Nothing when the model_type is another: bind_model reads that.
/// @throws LayoutError with every missing, mistyped, out-of-range or contradictory key
[[nodiscard]] std::optional<MoeConfig> parse_moe_config(std::string_view json,
                                                        const std::string& file_name);

}  // namespace tpsim
