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
// A vector.
std::shared_ptr<const Values> vector_of(const std::vector<float>& numbers) {
  return std::make_shared<MemoryValues>(Shape(static_cast<Index>(numbers.size())), numbers);
}
// Heads of two rows each.
std::shared_ptr<const Values> filled_heads(const std::vector<float>& head_values, Index cols) {
  std::vector<float> rows;
  for (const float v : head_values) rows.insert(rows.end(), 2, v);
  return filled_rows(rows, cols);
}

}  // namespace

namespace {

// Two query heads read each of two kv heads; the values of a head are its number, so that what
// attention mixes stays as it is and each rank's share of the sum can be read off.
void fill_toy_attention(LayerSpec& s, const std::string& prefix) {
  s.tokens = 3;
  s.qkv = {2, 2, 4, 2, 0};
  s.decoder.attention.rope.emplace().rotary_dim = 2;
  s.values[prefix + "q_proj.weight"] = filled_heads({0, 1, 2, 3}, 2);
  s.values[prefix + "k_proj.weight"] = filled_heads({1, -1}, 2);
  s.values[prefix + "v_proj.weight"] = filled_heads({10, 20}, 2);
  s.values[prefix + "o_proj.weight"] = filled_rows({1, 2}, 8);
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
  } else if (layer == "norm") {
    s.tokens = 2, s.qkv = {4, 2, 2, 2, 0};
    s.values["weight"] = vector_of({1, 2, 3, 4});
  } else if (layer == "attention") {
    fill_toy_attention(s, "");
  } else if (layer == "decoder") {
    fill_toy_attention(s, "self_attn.");
    s.intermediate = 4;
    s.values["input_layernorm.weight"] = vector_of({1, 2});
    s.values["post_attention_layernorm.weight"] = vector_of({1, 1});
    s.values["mlp.gate_proj.weight"] = filled_rows({1, 1, 1, 1}, 2);
    s.values["mlp.up_proj.weight"] = filled_rows({2, 2, 2, 2}, 2);
    s.values["mlp.down_proj.weight"] = filled_rows({1, 2}, 4);
  } else if (is_vocab_layer(layer)) {
    s.tokens = 3, s.vocab = 5, s.qkv.hidden = 2, s.vocab_cut = "padded(2*tp)";
    s.values[layer == "embedding" ? "embed_tokens.weight" : "lm_head.weight"] =
        filled_rows({-1, -2, -3, -4, -5}, 2);
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

namespace {

// The embedding's table, or the head's weight: of a tied head that is the table.
void fill_vocabulary(LayerSpec& s, const LinearWeights& w) {
  const bool table = w.name == "embed_tokens";
  if (!table && (w.name != "lm_head" || s.layer == "embedding"))
    throw UsageError(fmt::format("module {} is not a {} layer", w.name, s.layer),
                     s.layer == "embedding" ? "use --module model.embed_tokens"
                                            : "use --module lm_head, or the table of a tied one");
  s.tied = table && s.layer == "lm_head";
  s.vocab = w.weight.shape.rows();
  s.qkv.hidden = w.weight.shape.cols();
  s.values[w.name + ".weight"] = w.weight.values;
  if (w.bias) s.values[w.name + ".bias"] = w.bias->values;
  s.bias = w.bias.has_value();
}

}  // namespace

std::string fill_from_checkpoint(LayerSpec& s, const std::string& directory,
                                 const std::string& module) {
  const Checkpoint checkpoint(directory);
  const ModuleWeights weights = read_module(checkpoint, module);
  const DecoderShape& layer = checkpoint.model().shape.layers.front();
  if (is_vocab_layer(s.layer) && weights.kind == ModuleKind::linear)
    return fill_vocabulary(s, weights.linears.front()), "";
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
  s.qkv = layer.attention.qkv;
  s.intermediate = layer.intermediate;
  s.parts = {{"gate", s.intermediate}, {"up", s.intermediate}};
  s.in = layer.hidden();
  if (!single) return "";
  const LinearWeights& linear = weights.linears.front();
  s.in = linear.weight.shape.cols();
  s.out = linear.weight.shape.rows();
  s.prefix = linear.name + ".";
  return !linear.tp_dim ? "" : *linear.tp_dim == 1 ? "row" : "column";
}

namespace {

using WeightSizes = std::vector<std::tuple<std::string, Index, Index>>;

void add_attention_sizes(WeightSizes& out, const LayerSpec& s) {
  const QkvShape& q = s.qkv;
  out.insert(out.end(), {{"q_proj.weight", q.heads * q.head_dim, q.hidden},
                         {"k_proj.weight", q.kv_heads * q.head_dim, q.hidden},
                         {"v_proj.weight", q.kv_heads * q.v_head(), q.hidden}});
  if (s.layer != "qkv") out.emplace_back("o_proj.weight", q.hidden, q.heads * q.v_head());
}
Index norm_width(const LayerSpec& s) {
  const bool heads = s.decoder.attention.qk_norm == QkNorm::full_width;
  return heads ? s.qkv.heads * s.qkv.head_dim : s.qkv.hidden;
}
void add_mlp_sizes(WeightSizes& out, const LayerSpec& s) {
  if (s.layer == "mlp" || s.decoder.gated)
    out.emplace_back("gate_proj.weight", s.intermediate, s.qkv.hidden);
  out.insert(out.end(), {{"up_proj.weight", s.intermediate, s.qkv.hidden},
                         {"down_proj.weight", s.qkv.hidden, s.intermediate}});
}

}  // namespace

std::vector<std::tuple<std::string, Index, Index>> weight_sizes(const LayerSpec& s) {
  WeightSizes sizes;
  if (s.layer == "qkv" || s.layer == "attention" || s.layer == "decoder")
    add_attention_sizes(sizes, s);
  if (s.layer == "mlp" || s.layer == "decoder") add_mlp_sizes(sizes, s);
  if (s.layer == "norm") sizes.emplace_back("weight", norm_width(s), 1);
  if (!sizes.empty()) return sizes;
  if (s.layer == "merged") {
    std::vector<std::tuple<std::string, Index, Index>> out;
    for (const MergedPart& part : s.parts)
      out.emplace_back(part.name + "_proj.weight", part.rows, s.in);
    return out;
  }
  if (is_vocab_layer(s.layer))
    return {
        {s.layer == "embedding" ? "embed_tokens.weight" : "lm_head.weight", s.vocab, s.qkv.hidden}};
  return {{"weight", s.out, s.in}};
}

}  // namespace tpsim::cli
