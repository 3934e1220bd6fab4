// SPDX-License-Identifier: MIT
// A decoder layer, its attention or its norm declared as a plan, under the names that full() reads.
#pragma once

#include <string>

#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layout/plan.hpp>

namespace tpsim {

/// Parts of a decoder that can be verified alone.
enum class DecoderPart : std::uint8_t { norm, attention, layer };

namespace detail {

class DecoderPlan {
 public:
  DecoderPlan(const DecoderShape& s, DecoderPart part) : s_(s) {
    const QkvShape& q = s.attention.qkv;
    plan_.axes = {{"H", q.hidden},   {"kv", q.kv_heads}, {"g", q.heads / q.kv_heads},
                  {"d", q.head_dim}, {"m", q.v_head()},  {"i", s.intermediate}};
    plan_.input = "H";
    plan_.outputs = {"H"};
    const bool full_width = s.attention.qk_norm == QkNorm::full_width;
    std::vector<std::string> sums(part != DecoderPart::norm && full_width ? 2 : 0, "all_reduce");
    if (part == DecoderPart::norm) {
      plan_.name = "norm";
      full_width ? head_norm(sums) : stream_norm("");
    } else if (part == DecoderPart::attention) {
      plan_.name = "attention";
      attention("");
      sums.emplace_back("all_reduce");
    } else {
      plan_.name = "decoder";
      stream_norm("input_layernorm.");
      attention("self_attn.");
      stream_norm("post_attention_layernorm.");
      mlp("mlp.");
      sums.assign(static_cast<std::size_t>(decoder_sums(s).total()), "all_reduce");
    }
    plan_.collectives = std::move(sums);
  }
  [[nodiscard]] Plan take() { return std::move(plan_); }

 private:
  void add(std::string name, std::string rows, std::string cols, std::string style = "replicated",
           std::string cut = {}, std::string into = {}) {
    plan_.tensors.push_back({std::move(name), std::move(rows), std::move(cols), std::move(style),
                             std::move(cut), std::move(into)});
  }
  void stream_norm(const std::string& prefix) {
    add(prefix + "weight", "H", "");
    if (s_.norm == NormKind::layer) add(prefix + "bias", "H", "");
  }
  /// A norm of all query heads together, by itself.
  void head_norm(std::vector<std::string>& sums) {
    plan_.input = PlanValue("kv*g*d", "kv*g even");
    plan_.outputs = {PlanValue("kv*g*d", "kv*g even")};
    add("weight", "kv*g*d", "", "column", "kv*g even");
    sums.emplace_back("all_reduce");
  }
  void attention(const std::string& prefix) {
    const AttentionShape& a = s_.attention;
    for (const bool bias : {false, true}) {
      if (bias && !a.qkv_bias) continue;
      const std::string leaf = bias ? "bias" : "weight", cols = bias ? "" : "H";
      add(prefix + "q_proj." + leaf, "q:kv*g*d", cols, "column", "kv*g even", "qkv_proj");
      add(prefix + "k_proj." + leaf, "k:kv*d", cols, "column", "kv replicated", "qkv_proj");
      add(prefix + "v_proj." + leaf, "v:kv*m", cols, "column", "kv replicated", "qkv_proj");
    }
    if (a.qk_norm == QkNorm::per_head) {
      add(prefix + "q_norm.weight", "d", "");
      add(prefix + "k_norm.weight", "d", "");
    } else if (a.qk_norm == QkNorm::full_width) {
      add(prefix + "q_norm.weight", "kv*g*d", "", "column", "kv*g even");
      add(prefix + "k_norm.weight", "kv*d", "", "column", "kv replicated");
    }
    if (a.sinks) add(prefix + "sinks.weight", "kv*g", "", "column", "kv*g even");
    add(prefix + "o_proj.weight", "H", "kv*g*m", "row", "kv*g even");
    if (a.o_bias) add(prefix + "o_proj.bias", "H", "");
  }
  void mlp(const std::string& prefix) {
    for (const bool bias : {false, true}) {
      if (bias && !s_.mlp_bias) continue;
      const std::string leaf = bias ? "bias" : "weight", cols = bias ? "" : "H";
      if (s_.gated) {
        add(prefix + "gate_proj." + leaf, "gate:i", cols, "column", "i even", "gate_up_proj");
        add(prefix + "up_proj." + leaf, "up:i", cols, "column", "i even", "gate_up_proj");
      } else {
        add(prefix + "up_proj." + leaf, "i", cols, "column", "i even");
      }
    }
    add(prefix + "down_proj.weight", "H", "i", "row", "i even");
    if (s_.mlp_bias) add(prefix + "down_proj.bias", "H", "");
  }

  const DecoderShape& s_;
  Plan plan_;
};

}  // namespace detail

/// @pre decoder_violations(s, 1) is empty
[[nodiscard]] inline Plan decoder_plan(const DecoderShape& s, DecoderPart part) {
  return detail::DecoderPlan(s, part).take();
}

}  // namespace tpsim
