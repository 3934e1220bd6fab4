// SPDX-License-Identifier: MIT
// The smallest padding that makes an illegal tp legal: against brute force and hand-made numbers.
#include <tests/support/model_shapes.hpp>

namespace tpsim::test::plan_padding_tests {
namespace {

constexpr Engine engines[] = {Engine::nano_vllm, Engine::vllm, Engine::megatron,
                              Engine::transformers};

}  // namespace

TEST_CASE("tp padding: heads are padded inside their kv groups") {
  const ModelShape qwen = sizes(28, 4, 64, 64);  // 7 query heads a kv head
  const auto padding = smallest_padding(qwen, Engine::vllm, 8, RuleArea::attention);
  REQUIRE(padding);
  CHECK(padding->padded.heads == 32);
  CHECK(padding->padded.kv_heads == 4);
  CHECK(padding->text == "pad 28 query heads to 32: from 7 to 8 in each kv group");
  // Rows of q and columns of o, 4 heads of 16, hidden 64, 2 layers, bf16.
  CHECK(padding->added_bytes == 2 * (4 * 16) * 64 * 2 * 2);
  CHECK_FALSE(smallest_padding(qwen, Engine::vllm, 4, RuleArea::attention));  // legal
  CHECK_FALSE(smallest_padding(qwen, Engine::nano_vllm, 16, RuleArea::ranks));
}

TEST_CASE("tp padding: no legal shape with fewer heads is left out") {
  for (const Engine engine : engines)
    for (const auto& [kv, group] :
         std::vector<std::pair<Index, Index>>{{4, 7}, {3, 2}, {8, 4}, {1, 5}, {2, 3}, {5, 1}})
      for (Index tp = 1; tp <= 24; ++tp) {
        const ModelShape m = sizes(kv * group, kv, 24, 24 * 64);
        const auto padding = smallest_padding(m, engine, tp, RuleArea::attention);
        Index least = 0;  // brute force: rows of q, k, v and columns of o, in heads
        for (Index k = kv; k <= kv + 24; ++k)
          for (Index g = group; g <= group + 24; ++g) {
            bool bad = k * g % tp != 0;
            if (engine == Engine::vllm || engine == Engine::megatron)
              bad = bad || (k % tp != 0 && tp % k != 0);
            else
              bad = bad || k % tp != 0;
            if (engine == Engine::megatron && tp > k) bad = bad || (k * g + 2 * k) * 16 % tp != 0;
            const Index heads = 2 * (k * g + k);
            if (!bad && (least == 0 || heads < least)) least = heads;
          }
        CAPTURE(name(engine), kv, group, tp);
        REQUIRE(least > 0);
        const ModelShape& p = padding ? padding->padded : m;
        CHECK(2 * (p.heads + p.kv_heads) == least);
      }
}

TEST_CASE("tp padding: widths and vocabulary go to the next legal multiple") {
  const ModelShape m = sizes(12, 12, 50, 50257);
  CHECK(padded(m, Engine::vllm, 3, RuleArea::mlp).intermediate == 51);
  CHECK(padded(m, Engine::nano_vllm, 4, RuleArea::vocab).vocab == 50260);
  const ModelShape five = sizes(10, 10, 50, 50257);  // 50304 % 5 = 4; lcm(64, 5) = 320
  CHECK(padded(five, Engine::vllm, 5, RuleArea::vocab).vocab == 50560);
  CHECK_FALSE(smallest_padding(five, Engine::megatron, 5, RuleArea::vocab));
  for (const Engine engine : engines)
    for (Index tp = 1; tp <= 64; ++tp) {
      ModelShape all = llama_3_8b();
      for (const RuleArea area : {RuleArea::attention, RuleArea::mlp, RuleArea::vocab})
        if (const auto padding = smallest_padding(all, engine, tp, area)) all = padding->padded;
      std::vector<std::string> left;  // what no padding mends
      for (const BrokenRule& rule : broken_rules(all, engine, tp)) left.push_back(rule.message);
      CAPTURE(name(engine), tp);
      CHECK(left.size() == (engine == Engine::nano_vllm && tp > 8 ? 1 : 0));
    }
}

TEST_CASE("tp padding: what cannot be counted is not proposed") {
  ModelShape m = llama_3_8b();
  m.quantization = {QuantMethod::fp8, 0, 0, (1 << 24) - 1, 1 << 24, false};
  CHECK(!broken_rules(m, Engine::vllm, 8).empty());
  CHECK_FALSE(smallest_padding(m, Engine::vllm, 8, RuleArea::mlp));
}

}  // namespace tpsim::test::plan_padding_tests
