// SPDX-License-Identifier: MIT
// The rules of tp_rules.hpp in words.
#pragma once

#include <tpsim/verify/tp_rules.hpp>

namespace tpsim {

inline std::vector<RuleText> rule_texts(Engine engine) {
  switch (engine) {
    case Engine::nano_vllm:
      return {
          {"query heads", "divide by tp", "models/qwen3.py"},
          {"kv heads", "divide by tp; none is shared", "models/qwen3.py"},
          {"intermediate", "divides by tp (the row layer asserts it; the merged one only the sum)",
           "layers/linear.py"},
          {"vocabulary", "divides by tp, no padding", "layers/embed_head.py"},
          {"ranks", "1 to 8", "config.py"}};
    case Engine::vllm:
      return {
          {"query heads", "divide by tp", "model_executor/layers/linear.py"},
          {"kv heads", "divide by tp, or tp by them: then tp / kv_heads ranks share one",
           "model_executor/layers/linear.py, QKVParallelLinear"},
          {"intermediate", "divides by tp, as does the width of experts; tp is at most experts",
           "model_executor/layers/linear.py, models/qwen3_moe.py"},
          {"ep", "a multiple of tp, at most the experts; the first ranks have one more",
           "model_executor/layers/fused_moe/config.py, layer.py"},
          {"vocabulary", "padded to a multiple of 64, whatever tp is; that divides by tp",
           "layers/vocab_parallel_embedding.py"},
          {"gptq, awq", "a rank has whole groups of input columns and whole packed words of rows",
           "layers/quantization/gptq.py, awq.py"},
          {"fp8 blocks",
           "o_proj and down: whole blocks of columns; experts: whole blocks of rows too",
           "layers/quantization/utils/fp8_utils.py"},
          {"mxfp4", "whole blocks of 32, as many on each rank; the last may have fewer, not none",
           "models/gpt_oss.py"}};
    case Engine::megatron:
      return {{"query heads", "divide by tp", "core/transformer/attention.py"},
              {"kv heads", "divide by tp, or tp by them: then qkv is gathered in every layer",
               "core/transformer/attention.py"},
              {"intermediate", "divides by tp", "core/tensor_parallel/layers.py"},
              {"ep", "divides the experts; tp cuts the width of each, too",
               "core/transformer/moe/moe_layer.py"},
              {"vocabulary", "padded to a multiple of 128 * tp", "training/vocab_utils.py"}};
    case Engine::transformers:
      return {
          {"query heads", "divide by tp (a fused qkv is gathered: its rows and o_proj divide)",
           "distributed/tensor_parallel.py"},
          {"kv heads", "divide by tp; none is shared", "distributed/tensor_parallel.py"},
          {"intermediate", "any; ceil(n / tp) a rank, the last ones fewer or none",
           "distributed/tensor_parallel.py"},
          {"ep", "is tp, and divides the experts", "distributed/tensor_parallel.py, grouped_gemm"},
          {"vocabulary", "divides by tp for lm_head; the embedding is whole on every rank",
           "distributed/tensor_parallel.py, colwise_gather_output"}};
  }
  return {};
}

}  // namespace tpsim
