// SPDX-License-Identifier: MIT
// Bytes and collectives of a tp, against calculations that are written out here.
#include <tests/support/model_shapes.hpp>

namespace tpsim::test::plan_cost_tests {
namespace {

std::vector<std::string> collectives(const TpCost& cost) {
  std::vector<std::string> out;
  for (const PlannedCollective& c : cost.collectives)
    out.push_back(std::to_string(c.count) + " " + c.op + " " + std::to_string(c.array_bytes));
  return out;
}
using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("tp cost: llama-3-8b at tp 8 is as counted by hand") {
  const TpCost cost = tp_cost(llama_3_8b(), Engine::vllm, 8);
  const Index q = 512 * 4096;            // 4 of 32 heads of 128
  const Index k_and_v = 2 * 128 * 4096;  // one of 8 kv heads each
  const Index o = 4096 * 512;
  const Index gate_up = 2 * 1792 * 4096;  // 14336 / 8 rows each
  const Index down = 4096 * 1792;
  const Index embedding = 16032 * 4096;  // 128256 / 8 rows; 128256 = 64 * 2004 is not padded
  const Index elements = 32 * (q + k_and_v + o + gate_up + down) + 2 * embedding;
  const Index norms = (2 * 32 + 1) * 4096;  // two a layer, one at the end
  CHECK(elements * 2 == 2'007'498'752);
  CHECK(cost.weights == std::vector<RankBytes>(8, {elements * 2, norms * 2}));
  CHECK(cost.kv_bytes_per_token == 2 * 32 * 128 * 2);  // k and v, layers, one head, bf16
  CHECK(collectives(cost) == Lines{"65 all_reduce 8192", "1 gather 256512"});
  // A ring sends 2 * 7/8 of an all_reduce; the root of the gather gets 7/8 of the logits.
  CHECK(cost.wire_bytes == 65 * 14336 + 224448);
}

TEST_CASE("tp cost: llama-3-8b at tp 16 shares each kv head between two ranks") {
  const TpCost cost = tp_cost(llama_3_8b(), Engine::vllm, 16);
  const Index q = 256 * 4096, o = 4096 * 256;  // 2 heads
  const Index gate_up = 2 * 896 * 4096, down = 4096 * 896;
  const Index embedding = 8016 * 4096;
  const Index alone = 32 * (q + o + gate_up + down) + 2 * embedding;
  const Index k_and_v = 2 * 128 * 4096;  // one head still, on another rank too
  const Index shared = 32 * k_and_v + 65 * 4096;
  CHECK(cost.weights == std::vector<RankBytes>(16, {alone * 2, shared * 2}));
  CHECK(cost.kv_bytes_per_token == 16384);  // no less than at tp 8
  CHECK(cost.wire_bytes == 65 * (2 * 8192 - 2 * 8192 / 16) + 256512 - 256512 / 16);

  // Megatron cuts the rows of k and v all the same and gathers qkv in each layer. 128256 rows pad
  // to 129024 = 63 * 2048.
  const TpCost megatron = tp_cost(llama_3_8b(), Engine::megatron, 16);
  const Index half_head = 2 * 64 * 4096, padded = 8064 * 4096;
  CHECK(megatron.weights[0] ==
        RankBytes{2 * (32 * (q + o + gate_up + down + half_head) + 2 * padded), 2 * 65 * 4096});
  CHECK(megatron.kv_bytes_per_token == 16384);
  CHECK(collectives(megatron) ==
        Lines{"65 all_reduce 8192", "32 all_gather 12288", "1 all_gather 258048"});

  // transformers leaves the embedding whole, needs no all_reduce for it, and shares no kv head.
  const TpCost hf = tp_cost(llama_3_8b(), Engine::transformers, 8);
  CHECK(hf.weights[0].replicated == 2 * (65 * 4096 + 128256 * 4096));
  CHECK(collectives(hf) == Lines{"64 all_reduce 8192", "1 all_gather 256512"});
}

TEST_CASE("tp cost: qwen3-0.6b in nano-vllm at tp 2 has 57 all_reduces") {
  ModelShape m;
  m.hidden = 1024, m.intermediate = 3072, m.heads = 16, m.kv_heads = 8, m.head_dim = 128;
  m.layers = 28, m.vocab = 151936, m.tied = true, m.qk_norm = QkNorm::per_head;
  const TpCost cost = tp_cost(m, Engine::nano_vllm, 2);
  CHECK(collectives(cost) == Lines{"57 all_reduce 2048", "1 gather 303872"});
  CHECK(cost.wire_bytes == 116'736 + 151'936);
  CHECK(cost.kv_bytes_per_token == 57'344);
  const Index layer = 2048 * 1024 + 1024 * 1024 + 3072 * 1024 + 1024 * 1536;  // qkv o gate_up down
  CHECK(cost.weights[1] ==
        RankBytes{2 * (28 * layer + 75968 * 1024), 2 * (57 * 1024 + 28 * 2 * 128)});
  CHECK(checkpoint_bytes(m) == 2 * 596'049'920);  // the published parameter count
}

TEST_CASE("tp cost: a parallel residual has one all_reduce a layer, a norm of all heads one more") {
  ModelShape m = llama_3_8b();
  m.sums.stream = 1;
  CHECK(collectives(tp_cost(m, Engine::vllm, 8)) == Lines{"33 all_reduce 8192", "1 gather 256512"});
  // rowwise sums after each row-parallel layer
  CHECK(collectives(tp_cost(m, Engine::transformers, 8)).front() == "64 all_reduce 8192");
  CHECK(tp_cost(m, Engine::vllm, 1).collectives.empty());

  m = llama_3_8b();
  const RankBytes plain = tp_cost(m, Engine::vllm, 16).weights[0];
  m.qk_norm = QkNorm::full_width, m.sums.statistics = 2;
  const TpCost cost = tp_cost(m, Engine::vllm, 16);
  CHECK(collectives(cost) == Lines{"65 all_reduce 8192", "64 all_reduce 2", "1 gather 256512"});
  // 2 query heads of 128 entries on each of 16 ranks; a kv head is on two.
  CHECK(cost.weights[0] ==
        RankBytes{plain.sharded + 2 * 32 * 256, plain.replicated + 2 * 32 * 128});
}

TEST_CASE("tp cost: one rank has the checkpoint and all ranks together have it once") {
  ModelShape neox = llama_3_8b();
  neox.gated = false, neox.layer_norm = true, neox.qkv_bias = neox.o_bias = neox.mlp_bias = true;
  ModelShape moe = llama_3_8b();
  moe.experts = 8, moe.expert_intermediate = 1536, moe.dense_layers = 3;
  moe.qk_norm = QkNorm::per_head;
  ModelShape oss = moe;
  oss.expert_intermediate = 2880, oss.quantization.method = QuantMethod::mxfp4;
  oss.mlp_bias = oss.sinks = true;
  ModelShape gptq = llama_3_8b();
  gptq.quantization = {QuantMethod::awq, 4, 128, 0, 0, false};
  ModelShape fp8 = llama_3_8b();
  fp8.quantization = {QuantMethod::fp8, 0, 0, 128, 128, false};
  for (const ModelShape& m : {llama_3_8b(), neox, moe, oss, gptq, fp8}) {
    const Index whole = checkpoint_bytes(m);
    CHECK(tp_cost(m, Engine::vllm, 1).weights == std::vector<RankBytes>{{whole, 0}});
    for (const int tp : {2, 4, 8}) {  // no kv head is shared, no vocabulary padded
      if (!broken_rules(m, Engine::vllm, tp).empty()) continue;
      const TpCost cost = tp_cost(m, Engine::vllm, tp);
      Index sum = cost.weights[0].replicated;
      for (const RankBytes& rank : cost.weights) sum += rank.sharded;
      CHECK(sum == whole);
    }
  }
  // 90 blocks of 32 over 4 ranks: 23, 23, 23 and 21.
  const TpCost uneven = tp_cost(oss, Engine::vllm, 4);
  CHECK(uneven.weights[0] == uneven.weights[2]);
  CHECK(uneven.weights[3].sharded < uneven.weights[2].sharded);
}

TEST_CASE("tp cost: expert parallelism shares out whole experts") {
  ModelShape m = llama_3_8b();
  m.experts = 10, m.expert_intermediate = 1536, m.dense_layers = 2, m.experts_per_token = 2;
  const Index expert = 2 * 30 * 3 * 1536 * 4096;  // bytes of one in each of 30 layers
  const Index dispatched = 2 * 4096 * 2;          // two experts' inputs of a token
  const auto total = [](const TpCost& cost) {
    Index sum = 0;
    for (const RankBytes& rank : cost.weights) sum += rank.total();
    return sum;
  };
  const TpCost by_width = tp_cost(m, Engine::vllm, 2), whole = tp_cost(m, Engine::vllm, 2, 2);
  CHECK(whole.weights == by_width.weights);  // five experts, or half of ten
  CHECK(whole.experts == std::vector<Index>{5, 5});
  CHECK(by_width.experts == std::vector<Index>{10, 10});
  CHECK(collectives(whole) == collectives(by_width));

  // Two groups of attention over four ranks: 3, 3, 2 and 2 experts.
  const TpCost four = tp_cost(m, Engine::vllm, 2, 4);
  CHECK(four.experts == std::vector<Index>{3, 3, 2, 2});
  CHECK(four.weights[0].total() - four.weights[3].total() == expert);
  CHECK(four.weights[3].sharded == 2 * expert);  // the rest is in the other group, too
  CHECK(total(four) - 10 * expert == 2 * (total(by_width) - 10 * expert));
  CHECK(four.kv_bytes_per_token == by_width.kv_bytes_per_token);
  CHECK(collectives(four) == Lines{"35 all_reduce 8192",  // 65 less those of 30 layers' experts
                                   "60 all_to_all " + std::to_string(dispatched),
                                   "30 all_gather 8192", "1 gather 256512"});
  CHECK(four.wire_bytes == 35 * 8192 + 60 * dispatched * 3 / 4 + 30 * 4096 + 128256);
  CHECK(collectives(tp_cost(m, Engine::vllm, 1, 4)) ==
        Lines{"60 all_to_all " + std::to_string(dispatched)});

  // Megatron has ep groups of tp ranks, and half of each expert on a rank.
  const TpCost megatron = tp_cost(m, Engine::megatron, 2, 5);
  CHECK(megatron.experts == std::vector<Index>(10, 2));
  CHECK(megatron.weights.size() == 10);
  CHECK(megatron.weights[0].sharded == 2 * expert / 2);
  CHECK(collectives(megatron).size() == 5);
  CHECK(collectives(megatron)[3] == "30 reduce_scatter " + std::to_string(dispatched));
}

TEST_CASE("tp cost: quantised weights count their scales and zero points") {
  ModelShape m = llama_3_8b();
  CHECK(weight_bytes(m, 256, 512, false) == 256 * 512 * 2);
  m.quantization = {QuantMethod::awq, 4, 128, 0, 0, false};
  // half a byte each; 4 groups of an fp16 scale and half a byte of zero point for each row
  CHECK(weight_bytes(m, 256, 512, true) == 256 * 512 / 2 + 4 * (2 * 256 + 128));
  m.quantization.method = QuantMethod::gptq;  // and the group of each column in 4 bytes
  CHECK(weight_bytes(m, 256, 512, true) == 256 * 512 / 2 + 4 * (2 * 256 + 128) + 4 * 512);
  m.quantization = {QuantMethod::fp8, 0, 0, 128, 128, false};
  CHECK(weight_bytes(m, 130, 256, true) == 130 * 256 + 4 * 2 * 2);  // a begun block has a scale
  m.quantization = {QuantMethod::mxfp4, 0, 0, 0, 0, false};
  CHECK(weight_bytes(m, 64, 64, true) == 64 * 64 / 2 + 64 * 2);
}

}  // namespace tpsim::test::plan_cost_tests
