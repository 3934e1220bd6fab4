// SPDX-License-Identifier: MIT
// Which tp an engine accepts for a model, by the sizes of its config alone.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include <tpsim/core/divide.hpp>
#include <tpsim/core/text.hpp>
#include <tpsim/layers/vocab_options.hpp>
#include <tpsim/verify/model_shape.hpp>

namespace tpsim {

/// Whose rules. They differ: the same config is legal in one engine and not in another.
enum class Engine : std::uint8_t { nano_vllm, vllm, megatron, transformers };

[[nodiscard]] constexpr std::string_view name(Engine engine) {
  constexpr std::array<std::string_view, 4> names{"nano-vllm", "vllm", "megatron", "transformers"};
  return names[static_cast<std::size_t>(engine)];
}

/// What a rule is about; padding one of the first three can mend it.
enum class RuleArea : std::uint8_t { attention, mlp, experts, vocab, ranks, checkpoint };

/// One rule that a tp breaks. `source` names the file of the engine that asserts it.
struct BrokenRule {
  std::string id;  ///< check id: `divide`, or `names` where weights would go unread
  RuleArea area;
  std::string message, source;
};

[[nodiscard]] constexpr Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

/// Rows of the embedding when the engine has padded it.
/// nano-vllm `layers/embed_head.py`: none. vLLM `layers/vocab_parallel_embedding.py`: to 64,
/// whatever tp is. Megatron `training/vocab_utils.py`: to 128 * tp. transformers: none.
[[nodiscard]] constexpr Index padded_vocab(Index vocab, Engine engine, Index tp) {
  const bool times_tp = engine == Engine::megatron;
  const Index multiple = engine == Engine::vllm ? 64 : times_tp ? 128 : 1;
  return padded_vocab(VocabShape{vocab, 1, multiple, times_tp}, tp);
}

/// May more ranks than kv heads share them? vLLM `layers/linear.py` QKVParallelLinear, Megatron
/// `core/transformer/attention.py`; nano-vllm `layers/linear.py` and transformers cannot.
[[nodiscard]] constexpr bool shares_kv_heads(Engine engine) {
  return engine == Engine::vllm || engine == Engine::megatron;
}

/// transformers gathers a fused qkv and gate_up, and every rank then computes all heads:
/// `models/phi3/configuration_phi3.py`, styles colwise_gather_output and rowwise_split_input.
[[nodiscard]] inline bool gathers_fused(const ModelShape& m, Engine engine) {
  return engine == Engine::transformers && m.fused;
}

/// Expert parallelism: whole experts are shared out over `ep` ranks; 0: every rank has a part of
/// the width of each. What it means differs.
/// vLLM `layers/fused_moe/config.py`: ep = dp * tp, so that several groups of tp ranks, each with
/// the attention of its own sequences, share out one set of experts. Megatron
/// `core/transformer/moe/moe_layer.py`: ep groups of tp ranks, which also cut the width of their
/// experts. transformers `distributed/tensor_parallel.py`, grouped_gemm: the ranks are those of tp.
[[nodiscard]] constexpr Index ranks_of(Engine engine, Index tp, Index ep) {
  return ep == 0 ? tp : engine == Engine::megatron ? tp * ep : std::max(tp, ep);
}
/// Over how many ranks the width of an expert is cut.
[[nodiscard]] constexpr Index expert_tp(Engine engine, Index tp, Index ep) {
  return ep == 0 || engine == Engine::megatron ? tp : 1;
}
/// Experts of a layer on a rank: the first ranks have the remainder.
/// Source: vLLM `layers/fused_moe/layer.py`, determine_expert_map.
[[nodiscard]] constexpr Index local_experts(Index experts, Index ep, Index ep_rank) {
  return ep == 0 ? experts : experts / ep + (ep_rank < experts % ep ? 1 : 0);
}

/// Every rule of `engine` that `tp` breaks, in the order attention, MLP, experts, vocabulary,
/// ranks, checkpoint; empty when tp is legal.
/// @pre all sizes of `m` at least 1, heads a multiple of kv_heads, tp at least 1; ep 0 where the
///   model has no experts
[[nodiscard]] std::vector<BrokenRule> broken_rules(const ModelShape& m, Engine engine, Index tp,
                                                   Index ep = 0);

/// The rules of `engine` in words with their sources, a line each: what `--verbose` shows.
struct RuleText {
  std::string what, rule, source;
};
[[nodiscard]] std::vector<RuleText> rule_texts(Engine engine);

}  // namespace tpsim

#include <tpsim/verify/detail/tp_rule_texts.hpp>
#include <tpsim/verify/detail/tp_rules.hpp>
