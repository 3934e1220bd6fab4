// SPDX-License-Identifier: MIT
// Which tp each engine accepts, against tables that are written out here.
#include <tpsim/verify/tp_padding.hpp>

#include <tpsim/verify/layer_spec.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/model_shapes.hpp>

namespace tpsim::test::plan_rules_tests {
namespace {

std::vector<Index> legal(const ModelShape& m, Engine engine, Index most = 64) {
  std::vector<Index> out;
  for (Index tp = 1; tp <= most; ++tp)
    if (broken_rules(m, engine, tp).empty()) out.push_back(tp);
  return out;
}

std::vector<std::string> messages(const ModelShape& m, Engine engine, Index tp) {
  std::vector<std::string> out;
  for (const BrokenRule& rule : broken_rules(m, engine, tp)) {
    CHECK(rule.source != "");
    out.push_back(rule.id + " " + rule.message);
  }
  return out;
}

using Tps = std::vector<Index>;

}  // namespace

TEST_CASE("tp rules: the same config is legal in one engine and not in another") {
  struct Row {
    const char* what;
    ModelShape m;
    Tps nano, vllm, megatron, transformers;
  };
  // 50257 rows: vLLM pads to 50304 = 64 * 786 = 2^7 * 3 * 131. 18 = 2 * 9.
  const std::vector<Row> table{
      {"llama-3-8b",
       llama_3_8b(),
       {1, 2, 4, 8},
       {1, 2, 4, 8, 16, 32},
       {1, 2, 4, 8, 16, 32},
       {1, 2, 4, 8}},
      {"an odd vocabulary",
       sizes(12, 12, 48, 50257),
       {1},
       {1, 2, 3, 4, 6, 12},
       {1, 2, 3, 4, 6, 12},
       {1}},
      {"an odd width", sizes(8, 8, 15, 64), {1}, {1}, {1}, {1, 2, 4, 8}},
      // Megatron cuts qkv evenly for shared kv heads: (18 + 2) * 16 rows.
      {"one kv head", sizes(18, 1, 36, 128 * 9), {1}, {1, 2, 3, 6, 9, 18}, {1, 2}, {1}},
      {"three kv heads", sizes(12, 3, 24, 192), {1, 3}, {1, 3, 6, 12}, {1, 3, 6, 12}, {1, 3}},
      {"a vocabulary that 64 does not help",
       sizes(15, 15, 15, 15 * 7),
       {1, 3, 5},
       {1},
       {1, 3, 5, 15},
       {1, 3, 5, 15}}};
  for (const Row& row : table) {
    CAPTURE(row.what);
    CHECK(legal(row.m, Engine::nano_vllm) == row.nano);
    CHECK(legal(row.m, Engine::vllm) == row.vllm);
    CHECK(legal(row.m, Engine::megatron) == row.megatron);
    CHECK(legal(row.m, Engine::transformers) == row.transformers);
  }
}

TEST_CASE("tp rules: every broken rule is told at once and in order") {
  CHECK(messages(llama_3_8b(), Engine::vllm, 5) ==
        std::vector<std::string>{
            "divide 32 query heads over 5 ranks leaves 2",
            "divide 8 kv heads over 5 ranks leaves 3, and 5 does not divide by 8",
            "divide 14336 intermediate rows of gate and of up over 5 ranks leaves 1",
            "divide 128256 vocabulary rows over 5 ranks leaves 1"});
  CHECK(messages(sizes(8, 2, 32, 66), Engine::nano_vllm, 16) ==
        std::vector<std::string>{
            "divide 8 query heads over 16 ranks leaves 8",
            "divide 2 kv heads over 16 ranks leaves 2, and nano-vllm shares no kv head",
            "divide 66 vocabulary rows over 16 ranks leaves 2",
            "divide tp 16 is over the 8 ranks that nano-vllm takes"});
  CHECK(messages(sizes(8, 2, 32, 66), Engine::vllm, 3).back() ==
        "divide 128 vocabulary rows (66 padded to 64) over 3 ranks leaves 2");
}

TEST_CASE("tp rules: a layer that the library builds is legal for vllm and the reverse") {
  // The layers' own rules, written apart from these.
  for (const ModelShape& m : {llama_3_8b(), sizes(28, 4, 56, 64), sizes(18, 3, 30, 64),
                              sizes(7, 1, 14, 64), sizes(12, 12, 9, 64)})
    for (int tp = 1; tp <= 64; ++tp) {
      CAPTURE(m.heads, m.kv_heads, tp);
      LayerSpec qkv;
      qkv.layer = "qkv", qkv.tp = tp;
      qkv.qkv.hidden = m.hidden, qkv.qkv.head_dim = m.head_dim;
      qkv.qkv.heads = m.heads, qkv.qkv.kv_heads = m.kv_heads;
      LayerSpec mlp = qkv;
      mlp.layer = "mlp", mlp.intermediate = m.intermediate;
      mlp.parts = gate_up(m.intermediate);
      std::vector<std::string> attention, dense;
      for (const BrokenRule& rule : broken_rules(m, Engine::vllm, tp)) {
        if (rule.area == RuleArea::attention) attention.push_back(rule.message);
        if (rule.area == RuleArea::mlp) dense.push_back(rule.message);
      }
      CHECK(violations(qkv).empty() == attention.empty());
      CHECK(violations(mlp).empty() == dense.empty());
    }
}

TEST_CASE("tp rules: quantised groups and blocks stay whole on a rank") {
  // Qwen2.5-72B: 29568 = 231 * 128, which no even tp divides; its publisher pads it to 29696.
  ModelShape m;
  m.hidden = 8192, m.intermediate = 29568, m.heads = 64, m.kv_heads = 8, m.head_dim = 128;
  m.layers = 80, m.vocab = 152064;
  CHECK(broken_rules(m, Engine::vllm, 8).empty());
  m.quantization = {QuantMethod::gptq, 4, 128, 0, 0, false};
  CHECK(
      messages(m, Engine::vllm, 8) ==
      std::vector<std::string>{
          "divide 3696 input columns of down on a rank are no multiple of the gptq group of 128"});
  CHECK(padded(m, Engine::vllm, 8, RuleArea::mlp).intermediate == 29696);
  CHECK(legal(m, Engine::vllm) == Tps{1});
  m.quantization.group_size = 0;                         // a scale for each row: nothing is cut
  CHECK(legal(m, Engine::vllm) == Tps{1, 2, 4, 8, 16});  // 29568 / 32 = 924 rows, no word of 8

  ModelShape narrow = sizes(8, 8, 24, 64);
  narrow.head_dim = 4, narrow.quantization = {QuantMethod::awq, 4, 0, 0, 0, false};
  CHECK(messages(narrow, Engine::vllm, 8) ==
        std::vector<std::string>{
            "divide 4 rows of q on a rank are no multiple of the 8 that are packed together",
            "divide 4 rows of k and v each on a rank are no multiple of the 8 that are packed "
            "together",
            "divide 3 rows of gate and up each on a rank are no multiple of the 8 that are packed "
            "together"});
  CHECK(messages(narrow, Engine::megatron, 2) ==
        std::vector<std::string>{"names megatron has no layer for awq weights"});
  CHECK(messages(narrow, Engine::nano_vllm, 1).size() == 1);
  narrow.hidden = 100, narrow.quantization.group_size = 32;  // qkv, gate_up and down at every tp
  CHECK(messages(narrow, Engine::vllm, 1).size() == 3);
  CHECK_FALSE(smallest_padding(narrow, Engine::vllm, 1, RuleArea::attention));
  CHECK_FALSE(smallest_padding(narrow, Engine::vllm, 1, RuleArea::mlp));
}

TEST_CASE("tp rules: experts have blocks and counts of their own") {
  ModelShape moe = sizes(32, 4, 6144, 151936);  // Qwen3-30B-A3B in fp8
  moe.head_dim = 128, moe.experts = 128, moe.expert_intermediate = 768;
  CHECK(legal(moe, Engine::vllm) == Tps{1, 2, 4, 8, 16, 32});
  moe.quantization = {QuantMethod::fp8, 0, 0, 128, 128, false};
  CHECK(legal(moe, Engine::vllm) == Tps{1, 2});
  CHECK(messages(moe, Engine::vllm, 4) ==
        std::vector<std::string>{
            "divide 192 input columns of down on a rank are no multiple of the fp8 block of 128",
            "divide 192 rows of up on a rank are no multiple of the fp8 block of 128"});
  CHECK(padded(moe, Engine::vllm, 4, RuleArea::experts).expert_intermediate == 1024);
  moe.quantization.block_n = moe.quantization.block_k = 0;  // one scale for the tensor
  moe.experts = 8;
  CHECK(messages(moe, Engine::vllm, 16) ==
        std::vector<std::string>{"divide tp 16 is over the 8 experts"});

  // gpt_oss: 2880 = 90 blocks of 32. tp 4: 23, 23, 23, 21 blocks; tp 16: 6 each for 15 ranks.
  ModelShape oss = sizes(64, 8, 2880, 201088);
  oss.experts = 128, oss.expert_intermediate = 2880;
  oss.quantization.method = QuantMethod::mxfp4;
  CHECK(legal(oss, Engine::vllm) == Tps{1, 2, 4, 8});
  CHECK(messages(oss, Engine::vllm, 16) ==
        std::vector<std::string>{
            "divide 90 mxfp4 blocks of 32, 6 a rank, leave ranks from 15 on without any"});
  const ModelShape more = padded(oss, Engine::vllm, 16, RuleArea::experts);
  CHECK(more.expert_intermediate == 91 * 32);
  oss.expert_intermediate = 2881;
  CHECK(messages(oss, Engine::vllm, 1).size() == 1);
}

TEST_CASE("tp rules: whole experts are shared out over ep, by each engine in its way") {
  const auto told = [](const ModelShape& m, Engine engine, Index tp, Index ep) {
    std::vector<std::string> out;
    for (const BrokenRule& rule : broken_rules(m, engine, tp, ep)) {
      CHECK(rule.id == "divide");
      CHECK_FALSE(rule.source.empty());
      CHECK_FALSE(smallest_padding(m, engine, tp, rule.area, ep));
      out.push_back(rule.message);
    }
    return out;
  };
  using Texts = std::vector<std::string>;
  ModelShape moe = sizes(32, 4, 6144, 151936);
  moe.head_dim = 128, moe.experts = 128, moe.expert_intermediate = 768, moe.experts_per_token = 8;
  moe.quantization = {QuantMethod::fp8, 0, 0, 128, 128, false};
  // tp 4 would cut a block of an expert; whole experts have no such rule.
  CHECK(broken_rules(moe, Engine::vllm, 4).size() == 2);
  for (const Index ep : {4, 8, 12, 128}) CHECK(told(moe, Engine::vllm, 4, ep).empty());
  CHECK(told(moe, Engine::vllm, 4, 6) ==
        Texts{"ep 6 is no multiple of tp 4; ep can be 4, 8, 12, ... or 128"});
  CHECK(told(moe, Engine::vllm, 4, 132) ==
        Texts{"ep 132 leaves ranks without any of 128 experts; ep can be 4, 8, 12, ... or 128"});
  CHECK(told(moe, Engine::vllm, 1, 3).empty());  // 43, 43 and 42

  moe.quantization = {};
  CHECK(told(moe, Engine::megatron, 4, 16).empty());
  CHECK(told(moe, Engine::megatron, 4, 3) ==
        Texts{"128 experts over 3 ranks leaves 2; ep can be 1, 2, 4, 8, 16, 32, 64 or 128"});
  CHECK(told(moe, Engine::transformers, 4, 4).empty());
  CHECK(told(moe, Engine::transformers, 4, 8) == Texts{"ep 8 at tp 4: the same ranks are both"});
  CHECK(told(moe, Engine::nano_vllm, 4, 4) == Texts{"nano-vllm has no expert parallelism"});
  // Megatron cuts the width of an expert, too, and a padding of it helps still.
  moe.expert_intermediate = 770;
  CHECK(told(moe, Engine::vllm, 4, 4).empty());
  REQUIRE(broken_rules(moe, Engine::megatron, 4, 4).size() == 1);
  const auto padding = smallest_padding(moe, Engine::megatron, 4, RuleArea::experts, 4);
  REQUIRE(padding);
  CHECK(padding->padded.expert_intermediate == 772);
}

}  // namespace tpsim::test::plan_rules_tests
