// SPDX-License-Identifier: MIT
#include "sim/specs.hpp"

#include <fmt/format.h>

#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/checkpoint/module.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {
namespace {

// [rows, cols] in which every element of row r is `row_values[r]`.
std::shared_ptr<const Values> filled_rows(const std::vector<float>& row_values, Index cols) {
  std::vector<float> numbers;
  for (const float v : row_values) numbers.insert(numbers.end(), static_cast<std::size_t>(cols), v);
  return std::make_shared<MemoryValues>(Shape(static_cast<Index>(row_values.size()), cols),
                                        std::move(numbers));
}
// Heads of two rows each.
std::shared_ptr<const Values> filled_heads(const std::vector<float>& head_values, Index cols) {
  std::vector<float> rows;
  for (const float v : head_values) rows.insert(rows.end(), 2, v);
  return filled_rows(rows, cols);
}

}  // namespace

LayerSpec toy_spec(const std::string& layer) {
  LayerSpec s;
  s.layer = layer;
  s.tokens = 1;
  if (layer == "column") {
    s.tokens = 5, s.in = 3, s.out = 4;
    s.values["weight"] = filled_rows({0, 1, 2, 3}, 3);
  } else if (layer == "row") {
    s.in = 4, s.out = 2, s.bias = true;
    s.values["weight"] =
        std::make_shared<MemoryValues>(Shape(2, 4), std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    s.values["bias"] = std::make_shared<MemoryValues>(Shape(2), std::vector<float>{10, 20});
  } else if (layer == "qkv") {
    s.qkv = {3, 2, 4, 2, 0};
    s.values["q_proj.weight"] = filled_heads({0, 1, 2, 3}, 3);
    s.values["k_proj.weight"] = filled_heads({10, 11}, 3);
    s.values["v_proj.weight"] = filled_heads({20, 21}, 3);
  } else if (layer == "merged") {
    s.in = 3, s.parts = {{"gate", 4}, {"up", 4}};
    s.values["gate_proj.weight"] = filled_rows({1, 1, 1, 1}, 3);
    s.values["up_proj.weight"] = filled_rows({2, 2, 2, 2}, 3);
  } else if (layer == "mlp") {
    s.qkv.hidden = 3, s.intermediate = 4;
    s.values["gate_proj.weight"] = filled_rows({1, 1, 1, 1}, 3);
    s.values["up_proj.weight"] = filled_rows({2, 2, 2, 2}, 3);
    s.values["down_proj.weight"] = filled_rows({1, 2, 3}, 4);
  } else {
    s.in = 3, s.out = 2;
    s.values["weight"] = filled_rows({1, 2}, 3);
  }
  return s;
}

void fill_plain_sizes(LayerSpec& s) {
  s.in = s.layer == "row" ? s.qkv.heads * s.qkv.head_dim : s.qkv.hidden;
  s.out = s.layer == "column" ? s.intermediate : s.qkv.hidden;
}

void fill_from_checkpoint(LayerSpec& s, const std::string& directory, const std::string& module) {
  const Checkpoint checkpoint(directory);
  const ModuleWeights weights = read_module(checkpoint, module);
  const ModelConfig& config = checkpoint.config();
  const bool fits = weights.kind == ModuleKind::qkv ? s.layer == "qkv"
                    : weights.kind == ModuleKind::mlp
                        ? s.layer == "mlp" || s.layer == "merged"
                        : s.layer == "column" || s.layer == "row" || s.layer == "replicated";
  if (!fits)
    throw UsageError(fmt::format("module {} is not a {} layer", module, s.layer),
                     weights.kind == ModuleKind::qkv   ? "use --layer qkv"
                     : weights.kind == ModuleKind::mlp ? "use --layer mlp or merged"
                                                       : "use --layer column, row or replicated");
  const bool single = weights.kind == ModuleKind::linear;
  for (const LinearWeights& linear : weights.linears) {
    if (s.layer == "merged" && linear.name == "down_proj") continue;
    const std::string prefix = single ? "" : linear.name + ".";
    s.values[prefix + "weight"] = linear.weight.values;
    if (linear.bias) s.values[prefix + "bias"] = linear.bias->values;
    s.bias = s.bias || linear.bias.has_value();
  }
  s.qkv = {config.hidden_size, config.head_dim, config.num_attention_heads,
           config.num_key_value_heads, 0};
  s.intermediate = config.intermediate_size;
  s.parts = {{"gate", s.intermediate}, {"up", s.intermediate}};
  s.in = config.hidden_size;
  if (single) {
    const LinearWeights& linear = weights.linears.front();
    s.in = linear.weight.shape.cols();
    s.out = linear.weight.shape.rows();
    s.prefix = linear.name + ".";
  }
}

std::vector<std::tuple<std::string, Index, Index>> weight_sizes(const LayerSpec& s) {
  if (s.layer == "qkv")
    return {{"q_proj.weight", s.qkv.heads * s.qkv.head_dim, s.qkv.hidden},
            {"k_proj.weight", s.qkv.kv_heads * s.qkv.head_dim, s.qkv.hidden},
            {"v_proj.weight", s.qkv.kv_heads * s.qkv.v_head(), s.qkv.hidden}};
  if (s.layer == "mlp")
    return {{"gate_proj.weight", s.intermediate, s.qkv.hidden},
            {"up_proj.weight", s.intermediate, s.qkv.hidden},
            {"down_proj.weight", s.qkv.hidden, s.intermediate}};
  if (s.layer == "merged") {
    std::vector<std::tuple<std::string, Index, Index>> out;
    for (const MergedPart& part : s.parts)
      out.emplace_back(part.name + "_proj.weight", part.rows, s.in);
    return out;
  }
  return {{"weight", s.out, s.in}};
}

}  // namespace tpsim::cli
