// SPDX-License-Identifier: MIT
// Which layer to verify, with which sizes and options: the library's form of the command's request.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layout/cut.hpp>

namespace tpsim {

/// One layer of the linear family, the gated MLP, a layer of the vocabulary, or a decoder layer or
/// what it is made of. Sizes that a layer does not use are ignored.
struct LayerSpec {
  std::string layer = "qkv";  ///< one of known_layers()
  int tp = 1;
  Index tokens = 16;

  Index in = 0, out = 0;          ///< column, row, replicated, merged (in)
  std::vector<MergedPart> parts;  ///< merged; mlp has gate and up of `intermediate` rows
  QkvShape qkv;                   ///< qkv; `hidden` also of mlp, embedding and lm_head
  Index intermediate = 0;         ///< mlp
  Index vocab = 0;                ///< embedding, lm_head
  /// embedding, lm_head: "even"; padded with rows of zeros, "padded(64)", "padded(128*tp)", or with
  /// copies of the last row, "padded(64) last"
  std::string vocab_cut = "even";
  /// norm, attention, decoder: what they consist of. Its sizes are those above; `bias` gives every
  /// linear layer one.
  DecoderShape decoder;
  Index chunk = 0;  ///< attention, decoder: new tokens of a sequence in a step; 0: all, a prefill

  bool bias = false;
  bool skip_bias_add = false;
  bool gather_output = false;     ///< column, merged; lm_head: to all ranks, not to rank 0 alone
  bool input_is_parallel = true;  ///< row
  bool reduce_results = true;     ///< row
  bool tied = false;              ///< lm_head: its weight is the embedding's
  bool argmax = false;            ///< lm_head: token ids on every rank, without a gather of logits
  bool last_token = false;        ///< lm_head: of each of the two sequences the last token alone

  /// Order of a fused tensor on disk (qkv, merged, mlp's gate_up); "" when the parts are separate.
  std::string disk;
  /// Put before "weight" and "bias" in names: "o_proj."; "" for the layer's own choice.
  std::string prefix;
  /// Numbers of the checkpoint's tensors by their name here ("q_proj.weight", "weight",
  /// "qkv_proj.weight" when fused); a tensor without any is generated.
  std::map<std::string, std::shared_ptr<const Values>> values;
};

/// The layers of a decoder block that exist, in the order in which they are listed.
[[nodiscard]] inline const std::vector<std::string>& layer_names() {
  static const std::vector<std::string> names{"column", "row",        "merged",
                                              "qkv",    "replicated", "mlp"};
  return names;
}

/// Those that are cut over the vocabulary.
[[nodiscard]] inline const std::vector<std::string>& vocab_layer_names() {
  static const std::vector<std::string> names{"embedding", "lm_head"};
  return names;
}
[[nodiscard]] inline bool is_vocab_layer(const std::string& layer) {
  return layer == "embedding" || layer == "lm_head";
}
/// A decoder layer, and the parts of it that are more than linear.
[[nodiscard]] inline const std::vector<std::string>& decoder_layer_names() {
  static const std::vector<std::string> names{"norm", "attention", "decoder"};
  return names;
}
[[nodiscard]] inline bool is_decoder_layer(const std::string& layer) {
  return layer == "norm" || layer == "attention" || layer == "decoder";
}
/// All of them.
[[nodiscard]] inline std::vector<std::string> known_layers() {
  std::vector<std::string> names = layer_names();
  for (const auto* more : {&vocab_layer_names(), &decoder_layer_names()})
    names.insert(names.end(), more->begin(), more->end());
  return names;
}

/// The decoder's choices with the spec's sizes.
[[nodiscard]] inline DecoderShape decoder_shape(const LayerSpec& s) {
  DecoderShape d = s.decoder;
  d.attention.qkv = s.qkv;
  d.intermediate = s.intermediate;
  if (s.bias) d.attention.qkv_bias = d.attention.o_bias = d.mlp_bias = true;
  return d;
}
/// Of the part that the spec asks for.
[[nodiscard]] inline std::vector<Violation> decoder_violations_of(const LayerSpec& s, Index tp) {
  const DecoderShape d = decoder_shape(s);
  std::vector<Violation> v;
  if (s.layer == "attention") v = attention_violations(d.attention, tp);
  if (s.layer == "decoder") v = decoder_violations(d, tp);
  if (s.layer == "norm" && d.attention.qk_norm == QkNorm::full_width)
    v = qkv_violations(s.qkv, tp);
  else if (s.layer == "norm")
    v = norm_violations({s.qkv.hidden, d.norm_eps});
  if (s.chunk < 0) v.push_back({"divide", "a step cannot have fewer than no tokens"});
  return v;
}

/// How the vocabulary is cut. @throws LayoutError for a text that is no cut
[[nodiscard]] inline Cut vocab_cut(const LayerSpec& s) { return Cut::parse("V " + s.vocab_cut); }
/// The sizes as the layer takes them. @throws LayoutError as vocab_cut
[[nodiscard]] inline VocabShape vocab_shape(const LayerSpec& s) {
  const Cut cut = vocab_cut(s);
  return {s.vocab, s.qkv.hidden, cut.rule == CutRule::padded ? cut.size : 1, cut.times_tp,
          cut.fill};
}
/// @throws LayoutError as vocab_cut
[[nodiscard]] inline std::vector<Violation> vocab_violations_of(const LayerSpec& s, Index tp) {
  std::vector<Violation> v = vocab_violations(vocab_shape(s), tp);
  const Cut cut = vocab_cut(s);
  if (cut.rule != CutRule::even && cut.rule != CutRule::padded)
    v.push_back({"names", "a vocabulary is cut evenly or padded, not '" + s.vocab_cut + "'"});
  if (s.layer == "lm_head" && s.argmax && s.gather_output)
    v.push_back({"state", "argmax gathers no logits: it goes without gather_output"});
  if (s.layer == "lm_head" && s.argmax && s.vocab > no_choice)
    v.push_back({"names", "ids of a choice are exact in f32 up to " + std::to_string(no_choice) +
                              " rows, not " + std::to_string(s.vocab)});
  return v;
}

/// Every rule that the sizes, options and tp break; empty means legal.
[[nodiscard]] inline std::vector<Violation> violations(const LayerSpec& s) {
  const ColumnOptions column{s.bias, s.skip_bias_add, s.gather_output};
  const RowOptions row{s.bias, s.skip_bias_add, s.input_is_parallel, s.reduce_results};
  const Index tp = std::max(s.tp, 1);  // a tp below 1 is told by itself
  std::vector<Violation> v;
  if (s.layer == "column")
    v = column_violations(s.in, s.out, column, tp);
  else if (s.layer == "row")
    v = row_violations(s.in, s.out, row, tp);
  else if (s.layer == "merged")
    v = merged_violations(s.in, s.parts, column, tp);
  else if (s.layer == "qkv")
    v = qkv_violations(s.qkv, tp);
  else if (s.layer == "replicated")
    v = linear_violations(s.in, s.out);
  else if (s.layer == "mlp") {
    v = merged_violations(1, gate_up(s.intermediate), {}, tp);
    add_unless_positive(v, s.qkv.hidden, "hidden");
  } else if (is_vocab_layer(s.layer)) {
    v = vocab_violations_of(s, tp);
  } else if (is_decoder_layer(s.layer)) {
    v = decoder_violations_of(s, tp);
  } else {
    v.push_back({"names", "there is no layer '" + s.layer + "'"});
  }
  add_unless_positive(v, s.tp, "tp");
  add_unless_positive(v, s.tokens, "tokens");
  return v;
}

/// Every tp up to `most` that the layer can have, in order.
[[nodiscard]] inline std::vector<int> legal_tp(LayerSpec s, int most) {
  std::vector<int> legal;
  for (s.tp = 1; s.tp <= most; ++s.tp)
    if (violations(s).empty()) legal.push_back(s.tp);
  return legal;
}

}  // namespace tpsim
