// SPDX-License-Identifier: MIT
// Built-in model shapes, from the published config.json of each model.
#pragma once

#include <string>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim::cli {

struct ModelShape {
  std::string name;
  Index hidden, intermediate, heads, kv_heads, head_dim;
  bool qkv_bias;
};

[[nodiscard]] const std::vector<ModelShape>& models();
[[nodiscard]] const ModelShape* find_model(const std::string& name);

}  // namespace tpsim::cli
