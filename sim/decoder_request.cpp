// SPDX-License-Identifier: MIT
#include "sim/decoder_request.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/decoder_steps.hpp>
#include <tpsim/verify/decoder_words.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {
namespace {

constexpr Index longest = Index{1} << 24;
constexpr Index most_steps = 1024;

// The value of a choice by its name, when the option is given.
template <class Choice>
std::optional<Choice> chosen(const Given& given, const char* option,
                             const std::vector<Choice>& choices) {
  const auto it = given.find(option);
  if (it == given.end()) return std::nullopt;
  std::vector<std::string> names;
  for (const Choice c : choices) names.emplace_back(name(c));
  require_choice(option, it->second, names, fmt::format("--{} is {}", option, or_list(names)));
  const auto at = std::find(names.begin(), names.end(), it->second) - names.begin();
  return choices[static_cast<std::size_t>(at)];
}

void fill_attention(LayerSpec& spec, const Given& given) {
  AttentionShape& a = spec.decoder.attention;
  const auto size = [&](const char* option) {
    return number(option, given.at(option), 1, longest);
  };
  if (const auto norm =
          chosen<QkNorm>(given, "qk-norm", {QkNorm::none, QkNorm::per_head, QkNorm::full_width}))
    a.qk_norm = *norm;
  if (given.count("no-rope") != 0 && given.count("rotary-dim") != 0)
    throw UsageError("--no-rope, without --rotary-dim", "leave one of the two out");
  if (given.count("no-rope") != 0) a.rope.reset();
  if (given.count("rotary-dim") != 0) {
    if (!a.rope) a.rope.emplace();
    a.rope->rotary_dim = size("rotary-dim");
  }
  if (given.count("window") != 0) a.window = size("window");
  if (given.count("chunk") != 0) spec.chunk = number("chunk", given.at("chunk"), 0, longest);
  a.alibi = a.alibi || given.count("alibi") != 0;
  a.sinks = a.sinks || given.count("sinks") != 0;
  a.qkv_bias = a.qkv_bias || given.count("qkv-bias") != 0;
  a.o_bias = a.o_bias || given.count("o-bias") != 0;
}

// Every step is computed, and told.
void require_few_steps(const LayerSpec& spec) {
  if (spec.chunk == 0) return;
  const Index sequence = sequence_lengths(spec.tokens).front();
  const Index steps = (sequence + spec.chunk - 1) / spec.chunk;
  if (steps > most_steps)
    throw UsageError(
        fmt::format("--chunk {} makes {} steps of {} tokens", spec.chunk, steps, sequence),
        fmt::format("at most {} steps are computed: use a larger chunk or fewer "
                    "tokens",
                    most_steps));
}

}  // namespace

const std::vector<std::pair<std::string, std::vector<std::string>>>& decoder_layer_options() {
  static const std::vector<std::string> attends{"attention", "decoder"}, decoder{"decoder"};
  static const std::vector<std::pair<std::string, std::vector<std::string>>> only{
      {"qk-norm", {"norm", "attention", "decoder"}},
      {"norm", {"norm", "decoder"}},
      {"rotary-dim", attends},
      {"no-rope", attends},
      {"window", attends},
      {"alibi", attends},
      {"sinks", attends},
      {"chunk", attends},
      {"qkv-bias", attends},
      {"o-bias", attends},
      {"mlp-bias", decoder},
      {"plain-mlp", decoder},
      {"activation", decoder},
      {"parallel-residual", decoder}};
  return only;
}

void fill_from_model(LayerSpec& spec, const DecoderShape& model) {
  DecoderShape& d = spec.decoder;
  d = model;
  AttentionShape& a = d.attention;
  // What a command line can tell again: other rotary numbers change no layout.
  if (a.rope) {
    RopeSpec turns;
    turns.rotary_dim = model.attention.rope->rotary_dim == model.attention.qkv.head_dim
                           ? spec.qkv.head_dim
                           : std::min(model.attention.rope->rotary_dim, spec.qkv.head_dim);
    a.rope = turns;
  }
  a.window.reset();
  const DecoderShape plain;
  d.norm_eps = plain.norm_eps, a.norm_eps = plain.attention.norm_eps;
  // Heads are normed inside attention; the norm alone is that of the residual stream.
  if (spec.layer == "norm") a.qk_norm = QkNorm::none;
}

void fill_from_options(LayerSpec& spec, const Given& given) {
  DecoderShape& d = spec.decoder;
  fill_attention(spec, given);
  require_few_steps(spec);
  // One head's norm is what the stream's norm is, of another width.
  if (spec.layer == "norm" && d.attention.qk_norm == QkNorm::per_head) {
    if (given.count("layer") != 0 && given.at("layer") == "norm")
      throw UsageError("--qk-norm head is no option of layer norm",
                       "it belongs to attention or decoder; --qk-norm full is the norm of all "
                       "query heads together");
    d.attention.qk_norm = QkNorm::none;
  }
  if (const auto norm = chosen<NormKind>(
          given, "norm", {NormKind::rms, NormKind::layer, NormKind::layer_without_bias})) {
    if (spec.layer == "norm" && d.attention.qk_norm == QkNorm::full_width)
      throw UsageError("--norm, without --qk-norm full", "leave one of the two out");
    d.norm = *norm;
  }
  if (const auto f = chosen<Activation>(
          given, "activation", {Activation::silu, Activation::gelu, Activation::gelu_tanh}))
    d.activation = *f;
  d.mlp_bias = d.mlp_bias || given.count("mlp-bias") != 0;
  d.gated = d.gated && given.count("plain-mlp") == 0;
  d.parallel_residual = d.parallel_residual || given.count("parallel-residual") != 0;
}

}  // namespace tpsim::cli
