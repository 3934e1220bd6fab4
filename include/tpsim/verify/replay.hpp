// SPDX-License-Identifier: MIT
// A request as a command line that repeats it.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/decoder_words.hpp>
#include <tpsim/verify/layer_spec.hpp>

namespace tpsim {
namespace detail {

class DecoderReplay {
 public:
  DecoderReplay(const LayerSpec& s, std::vector<std::string>& words)
      : s_(s), d_(decoder_shape(s)), a_(d_.attention), words_(words) {}
  void norm() {
    if (a_.qk_norm == QkNorm::full_width) {
      heads();
      return add("qk-norm", name(a_.qk_norm));
    }
    number("hidden", s_.qkv.hidden);
    if (d_.norm != NormKind::rms) add("norm", name(d_.norm));
  }
  void attention() {
    heads();
    if (s_.qkv.v_head() != s_.qkv.head_dim) number("v-head-dim", s_.qkv.v_head());
    number("hidden", s_.qkv.hidden);
    if (a_.qk_norm != QkNorm::none) add("qk-norm", name(a_.qk_norm));
    if (!a_.rope)
      flag("no-rope", true);
    else if (a_.rope->rotary_dim != s_.qkv.head_dim)
      number("rotary-dim", a_.rope->rotary_dim);
    if (a_.window) number("window", *a_.window);
    flag("alibi", a_.alibi);
    flag("sinks", a_.sinks);
    flag("qkv-bias", a_.qkv_bias && !s_.bias);
    flag("o-bias", a_.o_bias && !s_.bias);
    if (s_.chunk != 0) number("chunk", s_.chunk);
  }
  void decoder() {
    attention();
    number("intermediate", s_.intermediate);
    flag("mlp-bias", d_.mlp_bias && !s_.bias);
    if (d_.norm != NormKind::rms) add("norm", name(d_.norm));
    flag("plain-mlp", !d_.gated);
    if (d_.activation != Activation::silu) add("activation", name(d_.activation));
    flag("parallel-residual", d_.parallel_residual);
  }

 private:
  void flag(const std::string& option, bool on) {
    if (on) words_.push_back("--" + option);
  }
  void add(const std::string& option, std::string_view value) {
    words_.push_back("--" + option);
    words_.emplace_back(value);
  }
  void number(const std::string& option, Index value) { add(option, std::to_string(value)); }
  void heads() {
    number("heads", s_.qkv.heads);
    number("kv-heads", s_.qkv.kv_heads);
    number("head-dim", s_.qkv.head_dim);
  }

  const LayerSpec& s_;
  const DecoderShape d_;
  const AttentionShape& a_;
  std::vector<std::string>& words_;
};

}  // namespace detail

/// `tpsim --tp 2 --layer qkv --heads 2 ...`, one word an entry, with every size and option that the
/// layer uses, so that no default matters.
[[nodiscard]] inline std::vector<std::string> replay_command(const LayerSpec& s,
                                                             const std::string& fault = {},
                                                             std::uint64_t seed = 1) {
  std::vector<std::string> words{"tpsim", "--tp", std::to_string(s.tp), "--layer", s.layer};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  const auto number = [&](const char* option, Index value) { add(option, std::to_string(value)); };
  if (!fault.empty()) add("--fault", fault);
  if (s.layer == "qkv") {
    number("--heads", s.qkv.heads);
    number("--kv-heads", s.qkv.kv_heads);
    number("--head-dim", s.qkv.head_dim);
    if (s.qkv.v_head() != s.qkv.head_dim) number("--v-head-dim", s.qkv.v_head());
    number("--hidden", s.qkv.hidden);
  } else if (s.layer == "mlp") {
    number("--hidden", s.qkv.hidden);
    number("--intermediate", s.intermediate);
  } else if (s.layer == "norm") {
    detail::DecoderReplay(s, words).norm();
  } else if (s.layer == "attention") {
    detail::DecoderReplay(s, words).attention();
  } else if (s.layer == "decoder") {
    detail::DecoderReplay(s, words).decoder();
  } else if (is_vocab_layer(s.layer)) {
    number("--vocab", s.vocab);
    number("--hidden", s.qkv.hidden);
    add("--vocab-cut", s.vocab_cut);
    if (s.tied) words.emplace_back("--tied");
    if (s.argmax) words.emplace_back("--argmax");
    if (s.last_token) words.emplace_back("--last-token");
  } else if (s.layer == "merged") {
    std::string rows;
    for (const MergedPart& part : s.parts)
      rows += (rows.empty() ? "" : ",") + std::to_string(part.rows);
    number("--in", s.in);
    add("--parts", rows);
  } else {
    number("--in", s.in);
    number("--out", s.out);
  }
  number("--tokens", s.tokens);
  if (s.bias) words.emplace_back("--bias");
  if (s.skip_bias_add) words.emplace_back("--skip-bias-add");
  if (s.gather_output) words.emplace_back("--gather-output");
  if (!s.input_is_parallel) words.emplace_back("--input-not-parallel");
  if (!s.reduce_results) words.emplace_back("--no-reduce-results");
  if (!s.disk.empty()) add("--disk", s.disk);
  if (seed != 1) add("--seed", std::to_string(seed));
  return words;
}

/// The words as a shell reads them.
[[nodiscard]] inline std::string shell_line(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    const bool plain =
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,=/:+") ==
            std::string::npos &&
        !word.empty();
    out += (out.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  }
  return out;
}

}  // namespace tpsim
