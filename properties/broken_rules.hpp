// SPDX-License-Identifier: MIT
// Which rules a layer's sizes and options break, worked out without the library's own list.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim::properties {

/// A reason that a refusal must give: the rule, and words that its sentence must contain.
struct Reason {
  std::string rule;
  std::vector<std::string> words;
};

/// All reasons, each once; empty for a legal layer. The rules: sizes, tp and tokens are positive;
/// what is cut goes round evenly; kv heads go round the ranks or the ranks round them; query heads
/// go round the kv heads; a bias is added once; part names tell parts apart.
[[nodiscard]] inline std::vector<Reason> broken_rules(const LayerSpec& s) {
  std::vector<Reason> out;
  const auto positive = [&](const std::string& what, Index n) {
    if (n < 1) out.push_back({"divide", {what, std::to_string(n), "positive"}});
    return n >= 1;
  };
  const bool tp = positive("tp", s.tp);
  const Index ranks = tp ? s.tp : 1;  // any number goes round one rank
  const auto goes_round = [&](const std::string& what, Index n) {
    if (n - n / ranks * ranks != 0)
      out.push_back({"divide", {what, std::to_string(n), std::to_string(ranks) + " ranks"}});
  };
  positive("tokens", s.tokens);

  if (s.layer == "column" || s.layer == "row" || s.layer == "replicated") {
    const bool in = positive("in", s.in), rows = positive("out", s.out);
    if (s.layer == "column" && rows) goes_round("output rows", s.out);
    if (s.layer == "row" && in) goes_round("input columns", s.in);
  } else if (s.layer == "merged" || s.layer == "mlp") {
    if (s.layer == "merged")
      positive("in", s.in);
    else
      positive("hidden", s.qkv.hidden);
    const std::vector<MergedPart> parts =
        s.layer == "merged"
            ? s.parts
            : std::vector<MergedPart>{{"gate", s.intermediate}, {"up", s.intermediate}};
    if (parts.empty()) out.push_back({"divide", {"at least one part"}});
    for (std::size_t k = 0; k < parts.size(); ++k) {
      if (positive("part " + parts[k].name, parts[k].rows))
        goes_round("part " + parts[k].name, parts[k].rows);
      for (std::size_t j = k + 1; j < parts.size(); ++j)
        if (parts[j].name == parts[k].name) out.push_back({"names", {parts[k].name}});
    }
  } else if (s.layer == "norm" && s.decoder.attention.qk_norm != QkNorm::full_width) {
    positive("norm", s.qkv.hidden);
  } else if (s.layer == "qkv" || s.layer == "norm" || s.layer == "attention" ||
             s.layer == "decoder") {
    const QkvShape& q = s.qkv;
    positive("hidden", q.hidden);
    positive("head_dim", q.head_dim);
    if (q.v_head_dim != 0) positive("v_head_dim", q.v_head_dim);
    const bool heads = positive("heads", q.heads), kv = positive("kv_heads", q.kv_heads);
    if (heads) goes_round("query heads", q.heads);
    const Index larger = std::max<Index>(q.kv_heads, ranks);
    if (kv && larger % std::min<Index>(q.kv_heads, ranks) != 0)
      out.push_back({"divide", {"kv heads", std::to_string(q.kv_heads), std::to_string(ranks)}});
    if (heads && kv && q.heads % q.kv_heads != 0)
      out.push_back({"heads", {std::to_string(q.heads), std::to_string(q.kv_heads)}});
    const AttentionShape& a = s.decoder.attention;
    const bool attends = s.layer == "attention" || s.layer == "decoder";
    if (attends && a.rope) {
      const Index turns = a.rope->rotary_dim;
      if (turns < 2 || turns / 2 * 2 != turns || turns > q.head_dim)
        out.push_back({"heads", {"rotary", std::to_string(turns), std::to_string(q.head_dim)}});
    }
    if (attends && a.window) positive("window", *a.window);
    if (s.layer == "decoder" && positive("intermediate", s.intermediate))
      goes_round("intermediate columns", s.intermediate);
  } else if (s.layer == "embedding" || s.layer == "lm_head") {
    positive("hidden", s.qkv.hidden);
    // "padded(4)", "padded(3*tp)": the rows grow to a multiple of that
    const bool padded = s.vocab_cut.rfind("padded(", 0) == 0;
    Index multiple = padded ? std::stoll(s.vocab_cut.substr(7)) : 1;
    if (s.vocab_cut.find("*tp") != std::string::npos) multiple *= ranks;
    if (positive("vocab", s.vocab))
      goes_round("vocabulary rows", s.vocab + (multiple - s.vocab % multiple) % multiple);
    if (!padded && s.vocab_cut != "even") out.push_back({"names", {s.vocab_cut}});
    if (s.argmax && s.gather_output) out.push_back({"state", {"argmax", "gather_output"}});
  } else {
    out.push_back({"names", {s.layer}});
  }

  if (s.chunk < 0) out.push_back({"divide", {"step"}});
  const bool column = s.layer == "column" || s.layer == "merged";
  if (column && s.bias && s.skip_bias_add && s.gather_output)
    out.push_back({"state", {"gather_output", "skip_bias_add"}});
  if (s.layer == "row" && s.bias && !s.skip_bias_add && !s.reduce_results)
    out.push_back({"state", {"bias", "reduce_results"}});
  return out;
}

/// What is wrong with a refusal that gave `told`, "" when it gave the wanted reasons and no other.
[[nodiscard]] inline std::string compare_reasons(const std::vector<Violation>& told,
                                                 const std::vector<Reason>& wanted) {
  std::vector<bool> used(told.size(), false);
  for (const Reason& reason : wanted) {
    std::size_t found = told.size();
    for (std::size_t i = 0; i < told.size() && found == told.size(); ++i) {
      bool fits = !used[i] && told[i].rule == reason.rule;
      for (const std::string& word : reason.words)
        fits = fits && told[i].message.find(word) != std::string::npos;
      if (fits) found = i;
    }
    if (found < told.size()) {
      used[found] = true;
      continue;
    }
    std::string text;
    for (const std::string& word : reason.words) text += (text.empty() ? "" : " ") + word;
    return "the refusal does not name rule " + reason.rule + " (" + text + ")";
  }
  for (std::size_t i = 0; i < told.size(); ++i)
    if (!used[i]) return "the refusal names a rule that is kept: " + told[i].message;
  return "";
}

}  // namespace tpsim::properties
