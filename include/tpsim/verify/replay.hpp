// SPDX-License-Identifier: MIT
// A request as a command line that repeats it.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim {

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
