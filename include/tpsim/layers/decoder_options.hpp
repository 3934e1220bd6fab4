// SPDX-License-Identifier: MIT
// What a decoder consists of: sizes and choices of the whole model.
#pragma once

#include <vector>

#include <tpsim/layers/attention_options.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/layers/norm.hpp>
#include <tpsim/layers/vocab_options.hpp>

namespace tpsim {

/// One layer. Its hidden size is attention.qkv.hidden.
struct DecoderShape {
  AttentionShape attention;
  Index intermediate = 0;
  bool gated = true;  ///< gate, up and down; else up and down
  Activation activation = Activation::silu;
  bool mlp_bias = false;
  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  /// Attention and MLP both read the layer's input, and one all_reduce sums them (gpt_neox,
  /// falcon).
  bool parallel_residual = false;

  [[nodiscard]] Index hidden() const { return attention.qkv.hidden; }
};

/// How many all_reduces a layer calls when it is cut.
struct DecoderSums {
  Index stream = 2;  ///< of [tokens, hidden]: attention's and the MLP's, or one of both together
  Index statistics = 0;  ///< of [tokens, 1], before those: q's and k's norm over all heads
  [[nodiscard]] Index total() const { return stream + statistics; }
  friend bool operator==(const DecoderSums&, const DecoderSums&) = default;
};
[[nodiscard]] inline DecoderSums decoder_sums(const DecoderShape& s) {
  return {s.parallel_residual ? 1 : 2, s.attention.qk_norm == QkNorm::full_width ? 2 : 0};
}

/// From token ids to logits.
struct CausalLMShape {
  std::vector<DecoderShape> layers;  ///< one for each, alike or not
  VocabShape vocab;                  ///< of the embedding and the head
  NormKind norm = NormKind::rms;     ///< before the head
  double norm_eps = 1e-6;
  bool tied = false;  ///< the head's weight is the embedding's
  bool head_bias = false;
  bool gather_to_all = false;          ///< every rank gets the logits, not rank 0 alone
  std::optional<Index> max_positions;  ///< of a sequence in the cache
};

[[nodiscard]] inline std::vector<Violation> decoder_violations(const DecoderShape& s, Index tp) {
  std::vector<Violation> v = attention_violations(s.attention, tp);
  if (add_unless_positive(v, s.intermediate, "intermediate") &&
      (tp <= 0 || s.intermediate % tp != 0))
    v.push_back(does_not_divide(s.intermediate, "intermediate columns", tp));
  if (!(s.norm_eps >= 0)) v.push_back({"divide", "a norm's epsilon cannot be negative"});
  return v;
}

/// Every rule that the model breaks at this tp, each once.
[[nodiscard]] inline std::vector<Violation> causal_lm_violations(const CausalLMShape& s, Index tp) {
  std::vector<Violation> all = vocab_violations(s.vocab, tp);
  if (s.layers.empty()) all.push_back({"divide", "a decoder needs a layer"});
  for (const DecoderShape& layer : s.layers) {
    if (layer.hidden() != s.vocab.hidden)
      all.push_back({"partners", "a layer is " + std::to_string(layer.hidden()) +
                                     " columns wide, the embedding " +
                                     std::to_string(s.vocab.hidden)});
    for (Violation& broken : decoder_violations(layer, tp)) all.push_back(std::move(broken));
  }
  std::vector<Violation> once;
  for (Violation& v : all) {
    bool told = false;
    for (const Violation& w : once) told = told || (w.rule == v.rule && w.message == v.message);
    if (!told) once.push_back(std::move(v));
  }
  return once;
}

}  // namespace tpsim
