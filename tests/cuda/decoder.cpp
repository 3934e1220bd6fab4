// SPDX-License-Identifier: MIT
// Whole decoders on the CUDA backend, with its kernels on the CPU: the golden logits of
// transformers, prefilled and step by step, cut over ranks.
#include <tests/support/cuda_fixture.hpp>
#include <tests/support/golden_model.hpp>

namespace tpsim::test {
namespace {

/// What f32 leaves of logits of this size through all layers: as the CPU's test has it.
constexpr double near_in_single = 5e-5;

/// Logits of every token of `ids`: the first `prompt` of them at once, then one by one.
std::vector<float> logits_of(const GoldenModel& m, int tp, DType rule,
                             const std::vector<Index>& ids, std::size_t prompt) {
  std::vector<float> out;
  cuda::Device device;
  VirtualRanks world(tp);
  world.run([&](Communicator& comm) {
    CudaBackend b(device, comm.rank(), rule);
    CausalLM<CudaBackend> net(b, comm, m.model.shape);
    load_model(net, m.model, m.stored);
    auto caches = net.make_caches();
    for (std::size_t past = 0; past < ids.size();) {
      const std::size_t n = past == 0 ? prompt : 1;
      const std::vector<Index> now(ids.begin() + static_cast<std::ptrdiff_t>(past),
                                   ids.begin() + static_cast<std::ptrdiff_t>(past + n));
      const auto y = net.forward(now, Batch({{0, static_cast<Index>(past), static_cast<Index>(n)}}),
                                 caches, LogitsOf::all_tokens);
      past += n;
      if (!y) continue;
      const std::vector<float> rows = b.to_host(*y);
      out.insert(out.end(), rows.begin(), rows.end());
    }
  });
  return out;
}

double farthest(const std::vector<float>& have, const eigen::Matrix<double>& wanted) {
  REQUIRE(static_cast<Index>(have.size()) >= wanted.size());
  double largest = 0;
  for (Index i = 0; i < wanted.size(); ++i) {
    const double off =
        std::abs(static_cast<double>(have[static_cast<std::size_t>(i)]) - wanted.data()[i]);
    largest = off <= largest ? largest : off;  // also a NaN
  }
  return largest;
}

/// The prompt and the tokens that follow it, and transformers' logits of them all.
struct Told {
  explicit Told(const std::string& name, std::size_t more = 4) : golden(test_data(name)) {
    ids = golden.ids("tokens");
    prompt = ids.size();
    const std::vector<Index> generated = golden.ids("generated");
    ids.insert(ids.end(), generated.begin(), generated.begin() + static_cast<std::ptrdiff_t>(more));
    const eigen::Matrix<double> first = golden.numbers("logits_f64"),
                                steps = golden.numbers("step_logits_f64");
    wanted.resize(static_cast<Index>(ids.size()), first.cols());
    wanted << first, steps.topRows(static_cast<Index>(more));
  }
  Golden golden;
  std::vector<Index> ids;
  std::size_t prompt = 0;
  eigen::Matrix<double> wanted;
};

TEST_CASE("cuda: golden logits of every checkpoint at every legal tp in f32") {
  for (const std::string& name : golden_models()) {
    const GoldenModel m(test_data(name));
    const Told told(name);
    for (int tp = 1; tp <= 12; ++tp) {
      if (!causal_lm_violations(m.model.shape, tp).empty()) continue;
      INFO(name << " tp " << tp);
      CHECK(farthest(logits_of(m, tp, DType::f32, told.ids, told.prompt), told.wanted) <
            near_in_single);
    }
    CHECK(farthest(logits_of(m, 1, DType::f32, told.ids, 2), told.wanted) < near_in_single);
  }
}

TEST_CASE("cuda: many lanes give the logits of one within f32") {
  const GoldenModel m(test_data("tiny-llama-rope3"));
  const Told told("tiny-llama-rope3");
  const test_cuda::WithLanes with(32);
  CHECK(farthest(logits_of(m, 2, DType::f32, told.ids, told.prompt), told.wanted) < near_in_single);
}

TEST_CASE("cuda: 16-bit decoders stay as near to the golden logits as the CPU's") {
  for (const DType rule : {DType::bf16, DType::f16}) {
    const GoldenModel m(test_data("tiny-llama"));
    const Told told("tiny-llama", 0);
    double of_cpu = 0;
    on_ranks<Single>(m, 2, rule, [&](Communicator&, Single&, CausalLM<Single>& net) {
      auto caches = net.make_caches();
      const auto y = net.forward(told.ids, Batch::prefill({static_cast<Index>(told.ids.size())}),
                                 caches, LogitsOf::all_tokens);
      if (y) of_cpu = (y->value.cast<double>() - told.wanted).cwiseAbs().maxCoeff();
    });
    const double own = farthest(logits_of(m, 2, rule, told.ids, told.prompt), told.wanted);
    CHECK(of_cpu > 0);
    CHECK(own < 3 * of_cpu);
  }
}

}  // namespace
}  // namespace tpsim::test
