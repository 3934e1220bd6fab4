// SPDX-License-Identifier: MIT
// Bodies of tp_rules.hpp.
#pragma once

#include <tpsim/verify/tp_rules.hpp>

namespace tpsim {
namespace detail {

// Collects the broken rules of one (model, engine, tp).
class TpRules {
 public:
  TpRules(const ModelShape& m, Engine engine, Index tp, Index ep)
      : m_(m), engine_(engine), tp_(tp), ep_(ep) {}

  std::vector<BrokenRule> all() {
    attention();
    if (m_.mlp_layers() > 0) mlp(RuleArea::mlp, m_.intermediate, "intermediate");
    if (m_.moe_layers() > 0) experts();
    vocab();
    ranks();
    checkpoint();
    return std::move(broken_);
  }

 private:
  [[nodiscard]] bool block_quantised() const { return m_.quantization.block_n > 0; }
  [[nodiscard]] bool packed() const {
    return m_.quantization.method == QuantMethod::gptq ||
           m_.quantization.method == QuantMethod::awq;
  }
  // mxfp4 keeps all but the experts in the model's dtype: it is neither packed nor in fp8 blocks.
  [[nodiscard]] bool vllm_judges_groups() const { return engine_ == Engine::vllm; }

  void add(RuleArea area, std::string message, const char* source) {
    broken_.push_back({"divide", area, std::move(message), source});
  }
  void must_divide(RuleArea area, Index count, const std::string& what, const char* source) {
    if (count % tp_ != 0)
      broken_.push_back({"divide", area, does_not_divide(count, what, tp_).message, source});
  }

  void attention() {
    const RuleArea area = RuleArea::attention;
    if (gathers_fused(m_, engine_)) {
      must_divide(area, (m_.heads + 2 * m_.kv_heads) * m_.head_dim, "rows of the fused qkv",
                  "transformers distributed/tensor_parallel.py, colwise_gather_output");
      must_divide(area, m_.heads * m_.head_dim, "input columns of o_proj",
                  "transformers distributed/tensor_parallel.py, rowwise_split_input");
      return;
    }
    must_divide(area, m_.heads, "query heads", heads_source());
    kv_heads();
    if (engine_ == Engine::megatron && tp_ > m_.kv_heads)
      must_divide(area, (m_.heads + 2 * m_.kv_heads) * m_.head_dim, "rows of qkv", heads_source());
    if (!vllm_judges_groups() || m_.heads % tp_ != 0) return;
    group_columns(area, m_.heads / tp_ * m_.head_dim, "o_proj");
    if (packed()) {
      const Index local_kv = local_kv_heads(m_.kv_heads, tp_);
      packed_rows(area, m_.heads / tp_ * m_.head_dim, "q");
      if (kv_legal()) packed_rows(area, local_kv * m_.head_dim, "k and v each");
      group_columns(area, m_.hidden, "qkv");
    }
  }

  [[nodiscard]] const char* heads_source() const {
    switch (engine_) {
      case Engine::nano_vllm:
        return "nano-vllm models/qwen3.py";
      case Engine::vllm:
        return "vLLM model_executor/layers/linear.py, QKVParallelLinear";
      case Engine::megatron:
        return "Megatron core/transformer/attention.py";
      case Engine::transformers:
        break;
    }
    return "transformers distributed/tensor_parallel.py: colwise would cut a head";
  }

  [[nodiscard]] bool kv_legal() const {
    return m_.kv_heads % tp_ == 0 || (shares_kv_heads(engine_) && tp_ % m_.kv_heads == 0);
  }
  void kv_heads() {
    if (kv_legal()) return;
    std::string message = does_not_divide(m_.kv_heads, "kv heads", tp_).message;
    message +=
        shares_kv_heads(engine_)
            ? ", and " + std::to_string(tp_) + " does not divide by " + std::to_string(m_.kv_heads)
            : std::string(", and ") + std::string(name(engine_)) + " shares no kv head";
    add(RuleArea::attention, std::move(message), heads_source());
  }

  // One width that gate and up cut by rows, down by columns.
  void mlp(RuleArea area, Index width, const std::string& what) {
    if (gathers_fused(m_, engine_)) {
      must_divide(area, 2 * width, "rows of the fused gate_up",
                  "transformers distributed/tensor_parallel.py, colwise_gather_output");
      must_divide(area, width, what + " columns of down",
                  "transformers distributed/tensor_parallel.py, rowwise_split_input");
      return;
    }
    if (engine_ == Engine::transformers) return;  // ceil(width / tp) a rank, the last ones shorter
    const char* source = engine_ == Engine::nano_vllm ? "nano-vllm layers/linear.py, divide()"
                         : engine_ == Engine::vllm
                             ? "vLLM model_executor/layers/linear.py, divide()"
                             : "Megatron core/tensor_parallel/layers.py, divide()";
    const std::string parts = m_.gated ? " rows of gate and of up" : " rows of up";
    must_divide(area, width, what + parts, source);
    if (!vllm_judges_groups() || width % tp_ != 0) return;
    group_columns(area, width / tp_, "down");
    if (packed()) {
      packed_rows(area, width / tp_, m_.gated ? "gate and up each" : "up");
      group_columns(area, m_.hidden, m_.gated ? "gate_up" : "up");
    }
    // A merged layer may have parts that are no whole blocks; one part alone and experts may not.
    if (block_quantised() && tp_ > 1 && (!m_.gated || area == RuleArea::experts) &&
        width / tp_ % m_.quantization.block_n != 0)
      add(area,
          str(width / tp_) + " rows of up on a rank are no multiple of the fp8 block of " +
              str(m_.quantization.block_n),
          "vLLM layers/quantization/utils/fp8_utils.py, validate_fp8_block_shape");
  }

  void experts() {
    if (ep_ > 0) expert_parallel();
    const Index width_tp = expert_tp(engine_, tp_, ep_);
    TpRules width(m_, engine_, width_tp, 0);
    width.expert_width();
    for (BrokenRule& rule : width.broken_) broken_.push_back(std::move(rule));
    if (engine_ == Engine::vllm && tp_ > m_.experts)
      broken_.push_back({"divide", RuleArea::ranks,
                         "tp " + str(tp_) + " is over the " + str(m_.experts) + " experts",
                         "vLLM models/qwen3_moe.py"});
  }

  void expert_width() {
    const Index width = m_.expert_intermediate;
    if (engine_ == Engine::vllm && m_.quantization.method == QuantMethod::mxfp4)
      mxfp4(width);
    else
      mlp(RuleArea::experts, width, "expert");
  }

  // None of these can be mended by padding: they are about ranks.
  void expert_parallel() {
    switch (engine_) {
      case Engine::nano_vllm:
        return refuse_ep("nano-vllm has no expert parallelism", {}, "nano-vllm models/qwen3.py");
      case Engine::vllm: {
        const char* source = "vLLM model_executor/layers/fused_moe/config.py";
        std::vector<int> legal;
        for (Index n = tp_; n <= m_.experts; n += tp_) legal.push_back(static_cast<int>(n));
        if (ep_ % tp_ != 0)
          refuse_ep("ep " + str(ep_) + " is no multiple of tp " + str(tp_), legal, source);
        if (ep_ > m_.experts)
          refuse_ep(
              "ep " + str(ep_) + " leaves ranks without any of " + str(m_.experts) + " experts",
              legal, source);
        return;
      }
      case Engine::megatron:
        return divide_experts("Megatron core/transformer/moe/moe_layer.py");
      case Engine::transformers: {
        const char* source = "transformers distributed/tensor_parallel.py, grouped_gemm";
        if (ep_ != tp_)
          refuse_ep("ep " + str(ep_) + " at tp " + str(tp_) + ": the same ranks are both", {},
                    source);
        return divide_experts(source);
      }
    }
  }
  void divide_experts(const char* source) {
    std::vector<int> legal;
    for (Index n = 1; n <= m_.experts; ++n)
      if (m_.experts % n == 0) legal.push_back(static_cast<int>(n));
    if (m_.experts % ep_ != 0)
      refuse_ep(does_not_divide(m_.experts, "experts", ep_).message, legal, source);
  }
  // "...; ep can be 2, 4, 6, ... or 128"
  void refuse_ep(std::string message, const std::vector<int>& legal, const char* source) {
    constexpr std::size_t most_told = 10;
    if (legal.size() > most_told)
      message += "; ep can be " + str(legal[0]) + ", " + str(legal[1]) + ", " + str(legal[2]) +
                 ", ... or " + str(legal.back());
    else if (!legal.empty())
      message += "; ep can be " + or_list(legal);
    add(RuleArea::ranks, std::move(message), source);
  }

  // Whole blocks of 32, ceil(blocks / tp) a rank: the last one may be short, none may be empty.
  void mxfp4(Index width) {
    const char* source = "vLLM models/gpt_oss.py";
    if (width % mxfp4_block != 0) {
      add(RuleArea::experts,
          str(width) + " expert columns are no multiple of the mxfp4 block of 32", source);
      return;
    }
    const Index blocks = width / mxfp4_block, each = (blocks + tp_ - 1) / tp_;
    const Index used = (blocks + each - 1) / each;
    if (used < tp_)
      add(RuleArea::experts,
          str(blocks) + " mxfp4 blocks of 32, " + str(each) + " a rank, leave ranks from " +
              str(used) + " on without any",
          source);
  }

  // `columns` of a row-parallel weight on a rank: no group or block of them may be cut.
  void group_columns(RuleArea area, Index columns, const std::string& weight) {
    const Quantization& q = m_.quantization;
    if (packed() && q.group_size > 0 && columns % q.group_size != 0)
      add(area,
          str(columns) + " input columns of " + weight + " on a rank are no multiple of the " +
              std::string(name(q.method)) + " group of " + str(q.group_size),
          q.method == QuantMethod::gptq ? "vLLM layers/quantization/gptq.py, create_weights"
                                        : "vLLM layers/quantization/awq.py, create_weights");
    if (block_quantised() && tp_ > 1 && columns % q.block_k != 0)
      add(area,
          str(columns) + " input columns of " + weight +
              " on a rank are no multiple of the fp8 block of " + str(q.block_k),
          "vLLM layers/quantization/utils/fp8_utils.py, validate_fp8_block_shape");
  }
  void packed_rows(RuleArea area, Index rows, const std::string& part) {
    const Index pack = m_.quantization.pack_factor();
    if (rows % pack != 0)
      add(area,
          str(rows) + " rows of " + part + " on a rank are no multiple of the " + str(pack) +
              " that are packed together",
          "vLLM model_executor/parameter.py, packed_dim");
  }

  void vocab() {
    const Index padded = padded_vocab(m_.vocab, engine_, tp_);
    if (padded % tp_ == 0) return;
    std::string what = "vocabulary rows";
    if (padded != m_.vocab) what = "vocabulary rows (" + str(m_.vocab) + " padded to 64)";
    must_divide(RuleArea::vocab, padded, what,
                engine_ == Engine::vllm ? "vLLM layers/vocab_parallel_embedding.py"
                : engine_ == Engine::nano_vllm
                    ? "nano-vllm layers/embed_head.py"
                    : "transformers distributed/tensor_parallel.py, colwise_gather_output");
  }

  void ranks() {
    if (engine_ == Engine::nano_vllm && tp_ > 8)
      broken_.push_back({"divide", RuleArea::ranks,
                         "tp " + str(tp_) + " is over the 8 ranks that nano-vllm takes",
                         "nano-vllm config.py"});
  }

  void checkpoint() {
    const QuantMethod method = m_.quantization.method;
    if (method == QuantMethod::none || engine_ == Engine::vllm || engine_ == Engine::transformers)
      return;
    broken_.push_back(
        {"names", RuleArea::checkpoint,
         std::string(name(engine_)) + " has no layer for " + std::string(name(method)) + " weights",
         engine_ == Engine::nano_vllm ? "nano-vllm layers/linear.py"
                                      : "Megatron core/tensor_parallel/layers.py"});
  }

  static std::string str(Index n) { return std::to_string(n); }

  const ModelShape& m_;
  Engine engine_;
  Index tp_, ep_;
  std::vector<BrokenRule> broken_;
};

}  // namespace detail

inline std::vector<BrokenRule> broken_rules(const ModelShape& m, Engine engine, Index tp,
                                            Index ep) {
  return detail::TpRules(m, engine, tp, ep).all();
}

}  // namespace tpsim
