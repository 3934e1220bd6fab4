// SPDX-License-Identifier: MIT
// Estimated times of a tp, against calculations that are written out here.
#include <tpsim/verify/tp_time.hpp>

#include <tests/support/model_shapes.hpp>

namespace tpsim::test::plan_time_tests {
namespace {

// Entries of llama-3-8b on one of 8 ranks: layers, with what is whole on every rank, and head.
constexpr double layers_of_8 =
    32.0 * (512 * 4096 + 2 * 128 * 4096 + 4096 * 512 + 3 * 1792 * 4096) + 65 * 4096;
constexpr double head_of_8 = 16032.0 * 4096;

}  // namespace

TEST_CASE("tp time: a token of llama-3-8b at tp 8 is as counted by hand") {
  const ForwardWork token = forward_work(llama_3_8b(), Engine::vllm, 8, 0, 1, 1000);
  // Weights of 2 bytes, a row of the embedding, and k and v of 1001 positions in 32 layers.
  CHECK(token.bytes == 2 * (layers_of_8 + head_of_8 + 4096) + 1001.0 * 2 * 32 * 128 * 2);
  CHECK(token.flop == 2 * (layers_of_8 + head_of_8) + 4.0 * 32 * 512 * 1001);
  CHECK(token.collectives == 66);
  CHECK(token.wire_bytes == 65 * 14336 + 224448);
}

TEST_CASE("tp time: a prompt reads its weights once and asks the head once") {
  const ForwardWork prompt = forward_work(llama_3_8b(), Engine::vllm, 8, 0, 1000, 0);
  CHECK(prompt.bytes == 2 * (layers_of_8 + head_of_8 + 1000.0 * 4096) + 1000.0 * 2 * 32 * 128 * 2);
  // The first token sees one position, the last a thousand.
  CHECK(prompt.flop == 2 * (1000 * layers_of_8 + head_of_8) + 4.0 * 32 * 512 * (1000.0 * 1001 / 2));
  CHECK(prompt.collectives == 66);
  CHECK(prompt.wire_bytes == 1000.0 * 65 * 14336 + 224448);
}

TEST_CASE("tp time: a tied head reads the embedding") {
  ModelShape m = llama_3_8b();
  const ForwardWork apart = forward_work(m, Engine::vllm, 8, 0, 1, 0);
  m.tied = true;
  const ForwardWork tied = forward_work(m, Engine::vllm, 8, 0, 1, 0);
  CHECK(tied.bytes == apart.bytes);
  CHECK(tied.flop == apart.flop);
}

TEST_CASE("tp time: only the experts that tokens choose are read and computed") {
  ModelShape m = llama_3_8b();
  m.experts = 16, m.expert_intermediate = 1536, m.experts_per_token = 2;
  const double expert = 32.0 * 3 * 1536 * 4096;  // entries of one in each layer
  const auto work = [&](int tp, int ep, Index tokens, Index chosen) {
    m.experts_per_token = chosen;
    return forward_work(m, Engine::vllm, tp, ep, tokens, 0);
  };
  const ForwardWork two = work(1, 0, 1, 2), three = work(1, 0, 1, 3);
  CHECK(three.bytes - two.bytes == 2 * expert);
  CHECK(three.flop - two.flop == 2 * expert);
  // Five tokens choose 10 of 16 experts, or 15; nine choose them all.
  CHECK(work(1, 0, 5, 3).bytes - work(1, 0, 5, 2).bytes == 5 * 2 * expert);
  CHECK(work(1, 0, 9, 3).bytes == work(1, 0, 9, 2).bytes);
  CHECK(work(1, 0, 9, 3).flop - work(1, 0, 9, 2).flop == 9 * 2 * expert);
  // On two ranks half of each expert, or one whole expert of the two.
  const ForwardWork width = work(2, 0, 1, 2), whole = work(2, 2, 1, 2);
  CHECK(whole.bytes == width.bytes);
  CHECK(whole.flop == width.flop);
  // Four ranks are two groups with a token each: 4 choices, one a rank.
  CHECK(work(2, 4, 1, 2).bytes == whole.bytes);
}

TEST_CASE("tp time: the longer of reading and computing counts, then what is sent") {
  const DeviceFigures device{.bandwidth = 100, .flops = 1000, .link = 10, .latency = 0.5};
  CHECK(forward_seconds({200, 1000, 0, 0}, device) == 2);
  CHECK(forward_seconds({200, 5000, 0, 0}, device) == 5);
  CHECK(forward_seconds({200, 5000, 30, 4}, device) == 5 + 3 + 2);
  const TpTime time = tp_time(llama_3_8b(), Engine::vllm, 8, 0, 1000, DeviceFigures{});
  CHECK(time.token ==
        forward_seconds(forward_work(llama_3_8b(), Engine::vllm, 8, 0, 1, 1000), DeviceFigures{}));
  CHECK(time.prompt ==
        forward_seconds(forward_work(llama_3_8b(), Engine::vllm, 8, 0, 1000, 0), DeviceFigures{}));
}

TEST_CASE("tp time: the default peak is that of the dtype") {
  CHECK(default_flops(DType::bf16) == DeviceFigures{}.flops);
  CHECK(default_flops(DType::f16) == DeviceFigures{}.flops);
  CHECK(default_flops(DType::f32) == 67e12);
}

}  // namespace tpsim::test::plan_time_tests
