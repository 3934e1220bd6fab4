// SPDX-License-Identifier: MIT
// The sizes of a model, from the config.json of a Hugging Face checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// What the linear layers of a decoder need to know. Sizes are at least 1 and small enough that
/// no product of two weight dimensions overflows.
struct ModelConfig {
  std::string model_type;  ///< qwen3, qwen2, llama or mistral
  Index hidden_size = 0;
  Index num_attention_heads = 0;
  Index num_key_value_heads = 0;  ///< divides num_attention_heads; default num_attention_heads
  Index head_dim = 0;  ///< default hidden_size / num_attention_heads; heads * head_dim need not be
                       ///< hidden_size
  Index intermediate_size = 0;
  Index num_hidden_layers = 0;
  Index vocab_size = 0;
  bool qkv_bias = false;  ///< always in qwen2, never in mistral, else `attention_bias`
  bool o_bias = false;    ///< never in qwen2 and mistral, else `attention_bias`
  bool mlp_bias = false;  ///< llama alone has the choice
  bool tie_word_embeddings = false;
  std::optional<DType> dtype;  ///< `dtype`, or `torch_dtype` as older files call it

  [[nodiscard]] Index q_size() const { return num_attention_heads * head_dim; }
  [[nodiscard]] Index kv_size() const { return num_key_value_heads * head_dim; }
};

/// @throws LayoutError with every missing, mistyped, out-of-range or contradictory key
[[nodiscard]] ModelConfig parse_model_config(std::string_view json, const std::string& file_name);

/// @throws LayoutError when the file cannot be read, or as parse_model_config
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& file);

}  // namespace tpsim
