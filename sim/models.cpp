// SPDX-License-Identifier: MIT
#include "sim/models.hpp"

#include <algorithm>

namespace tpsim::cli {

const std::vector<ModelShape>& models() {
  // hidden_size, intermediate_size, num_attention_heads, num_key_value_heads, head_dim, q/k/v bias
  static const std::vector<ModelShape> all{
      {"llama-2-7b", 4096, 11008, 32, 32, 128, false},
      {"llama-3-8b", 4096, 14336, 32, 8, 128, false},
      {"llama-3-70b", 8192, 28672, 64, 8, 128, false},
      {"llama-3.1-405b", 16384, 53248, 128, 8, 128, false},
      {"mistral-7b", 4096, 14336, 32, 8, 128, false},
      {"qwen2.5-7b", 3584, 18944, 28, 4, 128, true},
      {"qwen2.5-72b", 8192, 29568, 64, 8, 128, true},
      {"qwen3-0.6b", 1024, 3072, 16, 8, 128, false},
      {"qwen3-8b", 4096, 12288, 32, 8, 128, false},
      {"qwen3-32b", 5120, 25600, 64, 8, 128, false},
  };
  return all;
}

const ModelShape* find_model(const std::string& name) {
  const auto it = std::find_if(models().begin(), models().end(),
                               [&](const ModelShape& m) { return m.name == name; });
  return it == models().end() ? nullptr : &*it;
}

}  // namespace tpsim::cli
