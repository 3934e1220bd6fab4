// SPDX-License-Identifier: MIT
// A config.json of llama-3-8b, for tests that change it.
#pragma once

#include <nlohmann/json.hpp>

namespace tpsim::test {

/// With these keys more or instead.
inline nlohmann::ordered_json llama_config(
    const nlohmann::ordered_json& more = nlohmann::ordered_json::object()) {
  nlohmann::ordered_json config{{"model_type", "llama"},
                                {"hidden_size", 4096},
                                {"intermediate_size", 14336},
                                {"num_attention_heads", 32},
                                {"num_key_value_heads", 8},
                                {"num_hidden_layers", 32},
                                {"vocab_size", 128256},
                                {"torch_dtype", "bfloat16"},
                                {"hidden_act", "silu"},
                                {"max_position_embeddings", 8192},
                                {"head_dim", 128}};
  config.update(more);
  return config;
}

}  // namespace tpsim::test
