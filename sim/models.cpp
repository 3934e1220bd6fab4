// SPDX-License-Identifier: MIT
#include "sim/models.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/built_in_models.hpp>
#include <tpsim/checkpoint/moe_config.hpp>

#include "sim/checkpoint/problems.hpp"
#include "sim/model_source.hpp"

namespace tpsim::cli {
namespace {

ModelShape shape_of(const MoeConfig& c) {
  ModelShape m;
  m.hidden = c.hidden_size, m.intermediate = c.intermediate_size;
  m.heads = c.num_attention_heads, m.kv_heads = c.num_key_value_heads, m.head_dim = c.head_dim;
  m.layers = c.num_hidden_layers, m.vocab = c.vocab_size;
  m.tied = c.tie_word_embeddings;
  m.dtype = c.dtype.value_or(DType::bf16);
  m.qkv_bias = m.o_bias = c.attention_bias, m.mlp_bias = c.mlp_bias;
  m.experts = c.experts, m.expert_intermediate = c.expert_intermediate;
  m.experts_per_token = c.experts_per_token;
  m.dense_layers = c.dense_layers;
  m.quantization = c.quantization;
  m.sinks = c.model_type == "gpt_oss";
  if (c.model_type == "qwen3_moe") m.qk_norm = QkNorm::per_head;
  return m;
}

/// What the plan and the tensors that it names say.
ModelShape shape_of(const BoundModel& model) {
  const DecoderShape& layer = model.shape.layers.front();
  const AttentionShape& attention = layer.attention;
  ModelShape m;
  m.hidden = layer.hidden(), m.intermediate = layer.intermediate;
  m.heads = attention.qkv.heads, m.kv_heads = attention.qkv.kv_heads;
  m.head_dim = attention.qkv.head_dim;
  m.layers = static_cast<Index>(model.shape.layers.size()), m.vocab = model.shape.vocab.vocab;
  m.tied = model.shape.tied;
  m.dtype = model.dtype.value_or(DType::bf16);
  m.qkv_bias = attention.qkv_bias, m.o_bias = attention.o_bias, m.mlp_bias = layer.mlp_bias;
  m.gated = layer.gated, m.layer_norm = layer.norm == NormKind::layer;
  m.qk_norm = attention.qk_norm;
  m.sums = decoder_sums(layer);
  m.sinks = attention.sinks;
  m.quantization = model.quantization;
  for (const BoundTensor& t : model.kinds.front().plan.tensors)
    m.fused = m.fused || (t.param == "mlp.gate_up_proj.weight" && t.parts.size() > 1);
  return m;
}

void require_countable(const ModelShape& m) {
  const double weights = weight_estimate(m);
  if (weights > countable_weights)
    throw LayoutError(fmt::format("{} has {:.3g} weights; at most {:.3g} can be counted", m.name,
                                  weights, countable_weights),
                      {}, "are the sizes in config.json right?");
}

NamedModel named(const std::string& model, ModelShape shape, bool has_dtype) {
  NamedModel out{std::move(shape), {}};
  const std::string quoted = checkpoint_detail::shown(model);
  out.shape.name = quoted.substr(1, quoted.size() - 2);
  if (!has_dtype) out.notes.emplace_back("the config gives no dtype; bytes are those of bf16");
  require_countable(out.shape);
  return out;
}

}  // namespace

const std::vector<ModelShape>& models() {
  static const std::vector<ModelShape> all = [] {
    std::vector<ModelShape> shapes;
    for (const BuiltInModel& model : built_in_models()) {
      shapes.push_back(shape_of(bind_model(model.config, model.name)));
      shapes.back().name = model.name;
    }
    return shapes;
  }();
  return all;
}

const ModelShape* find_model(const std::string& name) {
  const auto it = std::find_if(models().begin(), models().end(),
                               [&](const ModelShape& m) { return m.name == name; });
  return it == models().end() ? nullptr : &*it;
}

NamedModel open_model(const std::string& model, const std::string& plan_file) {
  if (const ModelShape* built_in = find_model(model); built_in != nullptr && plan_file.empty())
    return {*built_in, {}};
  const ModelSource source = find_model_source(model);
  if (plan_file.empty())
    if (const auto moe = parse_moe_config(source.config, source.file))
      return named(model, shape_of(*moe), moe->dtype.has_value());
  const BoundModel b = bound(source, plan_file, ConfigUse::sizes);
  NamedModel out = named(model, shape_of(b), b.dtype.has_value());
  if (!plan_file.empty())
    out.notes.push_back("plan " + checkpoint_detail::shown(plan_file) + " for " +
                        checkpoint_detail::shown(b.architecture));
  return out;
}

}  // namespace tpsim::cli
