// SPDX-License-Identifier: MIT
#include "sim/check_stages.hpp"

#include <utility>

#include <fmt/format.h>

#include "sim/subjects.hpp"

namespace tpsim::cli {
namespace {

// The layers whose faults can be in a decoder layer: it is made of them.
const std::vector<std::string>& parts_of_a_decoder() {
  static const std::vector<std::string> parts{"decoder", "attention", "qkv",   "mlp",
                                              "merged",  "row",       "column"};
  return parts;
}

std::string vocab_layer(const Stage& stage) {
  return stage.what == Stage::What::embedding ? "embedding" : "lm_head";
}

// Faults of a part change the classes or what they are given; one that builds a part of other sizes
// knows no decoder.
bool applies(const Fault& fault, const Stage& stage, const LayerSpec& spec) {
  if (stage.what == Stage::What::norm) return false;
  if (stage.what != Stage::What::layer) return fault.applies_to(vocab_layer(stage));
  if (fault.applies_to("decoder")) return true;
  for (const std::string& part : parts_of_a_decoder())
    if (fault.applies_to(part)) return !fault.variation(spec).misbuild;
  return false;
}

}  // namespace

std::string Stage::name() const {
  switch (what) {
    case What::embedding:
      return "embed_tokens";
    case What::layer:
      return fmt::format("layers.{}{}", layer, decode ? " decode" : "");
    case What::norm:
      return "norm";
    default:
      return "lm_head";
  }
}

StageMaker::StageMaker(const BoundModel& model, int tp, std::string fault)
    : model_(&model), tp_(tp), fault_(std::move(fault)) {}

StageMaker::Sizes StageMaker::sizes(std::size_t kind, bool reduced) const {
  const DecoderShape& layer = model_->kinds.at(kind).shape;
  if (!reduced) return {layer, model_->shape.vocab};
  ReducedShape small = reduced_shape(layer, model_->shape.vocab, tp_);
  return {std::move(small.layer), small.vocab};
}

namespace {

LayerSpec decoder_spec(const DecoderShape& shape, int tp, Index tokens) {
  LayerSpec spec;
  spec.layer = "decoder", spec.tp = tp, spec.tokens = tokens;
  spec.qkv = shape.attention.qkv, spec.intermediate = shape.intermediate;
  spec.decoder = shape;
  return spec;
}

LayerSpec vocab_spec(const Stage& stage, const CausalLMShape& model, const VocabShape& vocab,
                     int tp, Index tokens, const TensorValues& values) {
  LayerSpec spec;
  spec.layer = vocab_layer(stage), spec.tp = tp, spec.tokens = tokens;
  spec.qkv.hidden = vocab.hidden, spec.vocab = vocab.vocab;
  if (vocab.pad_to > 1)
    spec.vocab_cut = fmt::format("padded({}{})", vocab.pad_to, vocab.pad_times_tp ? "*tp" : "");
  if (stage.what == Stage::What::head)
    spec.tied = model.tied, spec.bias = model.head_bias, spec.gather_output = model.gather_to_all;
  spec.values = values;
  return spec;
}

}  // namespace

bool StageMaker::is_faulty(const Stage& stage) const {
  const Fault* fault = find_fault(fault_);
  return fault != nullptr &&
         applies(*fault, stage, decoder_spec(model_->kinds.at(stage.kind).shape, tp_, 8));
}

std::unique_ptr<Subject> StageMaker::decoder(DecoderPart part, const Stage& stage,
                                             const DecoderShape& shape, const BoundPlan& plan,
                                             Index tokens, const TensorValues& values) const {
  const DecoderSteps steps{stage.decode ? 1 : 0};
  if (!is_faulty(stage))
    return std::make_unique<DecoderSubject<>>(part, shape, plan, tp_, tokens, steps, values);
  const LayerSpec spec = decoder_spec(shape, tp_, tokens);
  return std::make_unique<DecoderSubject<FaultyDecoderLayers>>(
      part, shape, plan, tp_, tokens, steps, values, find_fault(fault_)->variation(spec));
}

std::unique_ptr<Subject> StageMaker::make(const Stage& stage, bool reduced, Index tokens,
                                          const TensorValues& values) const {
  auto [layer, vocab] = sizes(stage.kind, reduced);
  if (stage.what == Stage::What::layer) {
    const BoundPlan& plan = model_->kinds[stage.kind].plan;
    return decoder(DecoderPart::layer, stage, layer,
                   reduced ? rebound(plan, decoder_axes(layer, vocab)) : plan, tokens, values);
  }
  if (stage.what == Stage::What::norm) {
    layer.norm = model_->shape.norm, layer.norm_eps = model_->shape.norm_eps;
    layer.attention.qk_norm = QkNorm::none;  // else the part is that norm
    TensorValues own;
    for (const auto& [name, numbers] : values)
      if (name.starts_with("norm.")) own[name.substr(5)] = numbers;
    return decoder(DecoderPart::norm, stage, layer,
                   bind_plan(decoder_plan(layer, DecoderPart::norm)), tokens, own);
  }
  return table(stage, vocab, tokens, values);
}

std::unique_ptr<Subject> StageMaker::table(const Stage& stage, const VocabShape& vocab,
                                           Index tokens, const TensorValues& values) const {
  const LayerSpec spec = vocab_spec(stage, model_->shape, vocab, tp_, tokens, values);
  if (!is_faulty(stage)) return std::make_unique<VocabSubject<>>(spec);
  return std::make_unique<VocabSubject<FaultyVocabLayers>>(spec,
                                                           find_fault(fault_)->variation(spec));
}

std::unique_ptr<Subject> StageMaker::columns(const Stage& stage, Index tokens,
                                             const TensorValues& values, Index hidden) const {
  VocabShape vocab = model_->shape.vocab;
  vocab.hidden = hidden;
  return table(stage, vocab, tokens, values);
}

std::unique_ptr<Subject> StageMaker::full(const Stage& stage, Index tokens,
                                          const TensorValues& values) const {
  return make(stage, false, tokens, values);
}
std::unique_ptr<Subject> StageMaker::reduced(const Stage& stage, Index tokens) const {
  return make(stage, true, tokens, {});
}
std::unique_ptr<Subject> StageMaker::reduced_attention(const Stage& stage, Index tokens) const {
  const DecoderShape layer = sizes(stage.kind, true).layer;
  return decoder(DecoderPart::attention, stage, layer,
                 bind_plan(decoder_plan(layer, DecoderPart::attention)), tokens, {});
}

}  // namespace tpsim::cli
