// SPDX-License-Identifier: MIT
// The parameters of a decoder, and what must fill them: the other side of a plan's rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::checkpoint_detail {

/// One part of a parameter: rows, and the axes of which a rank holds whole entries.
struct DecoderPart {
  std::string label;  ///< "q"; empty when the parameter has one part
  std::string rows;   ///< "kv*g*d"
  std::string cut;    ///< "kv*g"; of the columns in a row-parallel layer
};

struct DecoderParam {
  std::string layer;  ///< "self_attn.qkv_proj"
  std::string style;  ///< "column", "row", "replicated"
  std::vector<DecoderPart> parts;
  std::string cols;   ///< empty for a vector
  bool bias = false;  ///< may have one
  bool required = true;
};

/// Those outside the layers.
[[nodiscard]] inline const std::vector<DecoderParam>& model_params() {
  static const std::vector<DecoderParam> all{
      {"embed_tokens", "column", {{"", "V", "V"}}, "H"},
      {"norm", "replicated", {{"", "H", ""}}, "", true},
      {"lm_head", "column", {{"", "V", "V"}}, "H", true},
  };
  return all;
}

/// Those of a layer. A plan has mlp.gate_up_proj or mlp.up_proj; a q and k norm is of one head, or
/// of all (which is then cut).
[[nodiscard]] inline const std::vector<DecoderParam>& layer_params() {
  static const std::vector<DecoderParam> all{
      {"input_layernorm", "replicated", {{"", "H", ""}}, "", true},
      {"self_attn.qkv_proj",
       "column",
       {{"q", "kv*g*d", "kv*g"}, {"k", "kv*d", "kv"}, {"v", "kv*m", "kv"}},
       "H",
       true},
      {"self_attn.q_norm", "replicated", {{"", "d", ""}}, "", false, false},
      {"self_attn.q_norm", "column", {{"", "kv*g*d", "kv*g"}}, "", false, false},
      {"self_attn.k_norm", "replicated", {{"", "d", ""}}, "", false, false},
      {"self_attn.k_norm", "column", {{"", "kv*d", "kv"}}, "", false, false},
      {"self_attn.sinks", "column", {{"", "kv*g", "kv*g"}}, "", false, false},
      {"self_attn.o_proj", "row", {{"", "H", "kv*g"}}, "kv*g*m", true},
      {"post_attention_layernorm", "replicated", {{"", "H", ""}}, "", true},
      {"mlp.gate_up_proj", "column", {{"gate", "i", "i"}, {"up", "i", "i"}}, "H", true, false},
      {"mlp.up_proj", "column", {{"", "i", "i"}}, "H", true, false},
      {"mlp.down_proj", "row", {{"", "H", "i"}}, "i", true},
  };
  return all;
}

/// The parameter that rules of this style fill; any style when none fits; null for an unknown name.
[[nodiscard]] inline const DecoderParam* find_param(const std::vector<DecoderParam>& params,
                                                    std::string_view layer,
                                                    std::string_view style) {
  const DecoderParam* found = nullptr;
  for (const DecoderParam& p : params)
    if (p.layer == layer && (found == nullptr || p.style == style)) found = &p;
  return found;
}

}  // namespace tpsim::checkpoint_detail
