// SPDX-License-Identifier: MIT
// Whole decoders on the weights that transformers wrote, against the logits that it computed.
#include <tests/support/golden_model.hpp>

namespace tpsim::test::golden_logits_tests {
namespace {

/// The reference computes with the same operations in f64 and orders of its own: sums of at most
/// 60 columns one after the other, where ours go in 8 lanes (5 times our term), and frequencies of
/// another pow. Ten times our own bound has room for both.
constexpr double theirs = 10;

/// Through all layers bounds grow beyond use, so that logits have limits of their own beside: what
/// f64 and f32 leave of sums and products of this size. A wrong config value moves them by 1e-4.
constexpr double near_in_double = 1e-12, near_in_single = 5e-5;

/// How results lie to f64 numbers: largest difference, and over the sum of both bounds.
struct Distance {
  double ratio = 0, largest = 0;
  Index compared = 0;
  template <class Real>
  void add(const eigen::Tensor<Real>& have, const eigen::Matrix<double>& wanted,
           const eigen::Matrix<double>& reference_bound) {
    REQUIRE(have.value.rows() == wanted.rows());
    REQUIRE(have.value.cols() == wanted.cols());
    for (Index t = 0; t < wanted.rows(); ++t)
      for (Index c = 0; c < wanted.cols(); ++c) {
        const double bound = have.bound_at(t, c) + reference_bound(t, c);
        const double off = std::abs(static_cast<double>(have.value(t, c)) - wanted(t, c));
        if (off > 0) ratio = std::max(ratio, off / bound);
        if (!(off <= bound)) ratio = std::max(ratio, 2.0);  // also where either is no number
        largest = std::max(largest, off);
        ++compared;
      }
  }
};

/// Logits of one run, step by step, of all its tokens.
template <class B>
struct Run {
  std::vector<typename B::Tensor> logits, hidden;  ///< hidden: of the first step alone
  std::vector<Index> generated;
};

/// Prefills `prompt` in chunks (0: at once), then feeds `more` tokens of its own choice.
template <class B>
Run<B> run_model(const GoldenModel& m, int tp, DType rule, const std::vector<Index>& prompt,
                 Index chunk, Index more) {
  Run<B> out;
  std::vector<Index> ids;  // of the next step, chosen by rank 0
  on_ranks<B>(m, tp, rule, [&](Communicator& comm, B&, CausalLM<B>& net) {
    auto caches = net.make_caches();
    Index past = 0;
    const auto step = [&](const std::vector<Index>& now) {
      const Index n = static_cast<Index>(now.size());
      auto y = net.forward(now, Batch({{0, past, n}}), caches, LogitsOf::all_tokens);
      past += n;
      REQUIRE(y.has_value() == (comm.rank() == 0));
      if (!y) return;
      const eigen::Matrix<double> last = y->value.bottomRows(1).template cast<double>();
      ids = {best_of(last, 0)};
      out.logits.push_back(std::move(*y));
    };
    const Index length = static_cast<Index>(prompt.size()), size = chunk == 0 ? length : chunk;
    for (Index at = 0; at < length; at += size)
      step({prompt.begin() + at, prompt.begin() + std::min(length, at + size)});
    for (Index i = 0; i < more; ++i) {
      VirtualRanks::meet(comm);  // rank 0 has chosen
      const std::vector<Index> now = ids;
      VirtualRanks::meet(comm);  // every rank has seen it
      if (comm.rank() == 0) out.generated.push_back(now[0]);
      step(now);
    }
  });
  return out;
}

/// One stage at this tp, on every rank: the embedding (0), layer i - 1, the last norm.
template <class B>
std::vector<typename B::Tensor> stage_of(const GoldenModel& m, int tp, DType rule,
                                         const std::vector<Index>& ids, std::size_t stage,
                                         const eigen::Matrix<double>& input) {
  std::vector<typename B::Tensor> out(static_cast<std::size_t>(tp));
  on_ranks<B>(m, tp, rule, [&](Communicator& comm, B& b, CausalLM<B>& net) {
    auto& y = out[static_cast<std::size_t>(comm.rank())];
    if (stage == 0) {
      y = net.embed_tokens.forward(ids);
      return;
    }
    auto caches = net.make_caches();
    typename B::Tensor x = b.input(input);
    if (rule != DType::f64) x.bound = input.cwiseAbs() * 0x1p-24;  // it was f64
    if (stage > net.layers.size())
      y = net.norm.forward(x);
    else
      y = settled(b, net.layers[stage - 1]->forward(
                         {std::move(x)}, Batch::prefill({static_cast<Index>(ids.size())}),
                         caches[stage - 1]));
  });
  return out;
}

eigen::Matrix<double> scaled_bound(const Exact::Tensor& x) {
  return theirs * eigen::bound_or_zeros(x);
}

/// The same run in f64 at tp 1, whose bounds say how far the golden numbers may be from exact ones.
struct Truth {
  Truth(const GoldenModel& m, const std::vector<Index>& prompt, Index more)
      : run(run_model<Exact>(m, 1, DType::f64, prompt, 0, more)) {}
  Run<Exact> run;
};

template <class B>
Distance distance(const Run<B>& have, const Golden& golden, const Truth& truth,
                  const std::string& suffix) {
  Distance d;
  const eigen::Matrix<double> prefill = golden.numbers("logits_f64" + suffix),
                              steps = golden.numbers("step_logits_f64" + suffix);
  std::size_t next = 0;
  Index row = 0;
  for (; row < prefill.rows(); ++next) {  // chunks
    const Index n = have.logits.at(next).value.rows();
    d.add(have.logits[next], prefill.middleRows(row, n),
          theirs * truth.run.logits[0].bound.middleRows(row, n));
    row += n;
  }
  for (Index i = 0; next < have.logits.size(); ++i, ++next)
    d.add(have.logits[next], steps.row(i),
          scaled_bound(truth.run.logits.at(static_cast<std::size_t>(i) + 1)));
  return d;
}

std::vector<int> legal_up_to(const CausalLMShape& shape, int most) {
  std::vector<int> out;
  for (int tp = 1; tp <= most; ++tp)
    if (causal_lm_violations(shape, tp).empty()) out.push_back(tp);
  return out;
}

constexpr Index fed = 4;  // tokens that the golden files generate

}  // namespace

TEST_CASE("golden logits: f64 at tp 1 is what transformers computes in f64") {
  const std::vector<std::string> names = golden_models();
  REQUIRE(names.size() == 11);
  for (const std::string& name : names) {
    const GoldenModel m(test_data(name));
    const Golden golden(test_data(name));
    for (const std::string suffix : {"", "_b"}) {
      CAPTURE(name, suffix);
      const std::vector<Index> prompt = golden.ids("tokens" + suffix);
      const Truth truth(m, prompt, fed);
      const Distance whole = distance(truth.run, golden, truth, suffix);
      CAPTURE(whole.ratio, whole.largest);
      CHECK(whole.ratio <= 1);
      CHECK(whole.largest < near_in_double);
      CHECK(whole.compared == golden.numbers("logits_f64" + suffix).size() +
                                  golden.numbers("step_logits_f64" + suffix).size());
      CHECK(truth.run.generated == golden.ids("generated" + suffix));
      for (const Index chunk : {1, 2, 4}) {
        CAPTURE(chunk);
        const Run<Exact> run = run_model<Exact>(m, 1, DType::f64, prompt, chunk, fed);
        const Distance chunked = distance(run, golden, truth, suffix);
        CHECK(chunked.ratio <= 1);
        CHECK(chunked.largest < near_in_double);
        CHECK(run.generated == golden.ids("generated" + suffix));
      }
    }
  }
}

TEST_CASE("golden logits: each layer gives what transformers makes of the same stream in f64") {
  for (const std::string& name : golden_models()) {
    const GoldenModel m(test_data(name));
    const Golden golden(test_data(name));
    const std::vector<Index> ids = golden.ids("tokens");
    const std::size_t layers = m.model.shape.layers.size();
    CHECK(!golden.has("hidden." + std::to_string(layers + 1)));
    const auto stream = [&](std::size_t i) {
      return golden.numbers("hidden." + std::to_string(i));
    };
    for (std::size_t stage = 0; stage < layers + 2; ++stage) {
      const auto input = stage == 0 ? eigen::Matrix<double>() : stream(stage - 1);
      const auto wanted = stage > layers ? golden.numbers("final_norm") : stream(stage);
      const auto at_1 = stage_of<Exact>(m, 1, DType::f64, ids, stage, input);
      const auto reference_bound = scaled_bound(at_1[0]);
      for (const int tp : legal_up_to(m.model.shape, 12)) {
        CAPTURE(name, stage, tp);
        for (const auto& y : stage_of<Exact>(m, tp, DType::f64, ids, stage, input)) {
          Distance d;
          d.add(y, wanted, reference_bound);
          CAPTURE(d.ratio, d.largest);
          CHECK(d.ratio <= 1);
          CHECK(d.largest < near_in_double);
          CHECK(d.compared == wanted.size());
        }
        for (const auto& y : stage_of<Single>(m, tp, DType::f32, ids, stage, input)) {
          Distance d;
          d.add(y, wanted, reference_bound);
          CAPTURE(d.ratio, d.largest);
          CHECK(d.ratio <= 1);
          CHECK(d.largest < near_in_single);
        }
      }
    }
  }
}

TEST_CASE("golden logits: every legal tp gives the same tokens and logits within the bounds") {
  for (const std::string& name : golden_models()) {
    const GoldenModel m(test_data(name));
    const Golden golden(test_data(name));
    const std::vector<Index> prompt = golden.ids("tokens");
    const Truth truth(m, prompt, fed);
    const std::vector<int> legal = legal_up_to(m.model.shape, 12);
    CHECK(legal.size() >= 2);
    for (const int tp : legal) {
      CAPTURE(name, tp);
      const Run<Exact> in_double = run_model<Exact>(m, tp, DType::f64, prompt, 0, fed);
      const Distance twice = distance(in_double, golden, truth, "");
      CHECK(twice.ratio <= 1);
      CHECK(twice.largest < near_in_double);
      CHECK(in_double.generated == golden.ids("generated"));
      const Run<Single> in_single = run_model<Single>(m, tp, DType::f32, prompt, 0, fed);
      const Distance single = distance(in_single, golden, truth, "");
      CAPTURE(single.ratio, single.largest);
      CHECK(single.ratio <= 1);
      CHECK(single.largest < near_in_single);
      CHECK(single.largest > 1e-9);  // it was computed in f32
      CHECK(in_single.generated == golden.ids("generated"));
    }
  }
}

TEST_CASE("golden logits: two prompts of different lengths in one batch give the logits of each") {
  for (const std::string& name : golden_models()) {
    const GoldenModel m(test_data(name));
    const Golden golden(test_data(name));
    const std::vector<Index> a = golden.ids("tokens"), b = golden.ids("tokens_b");
    const std::vector<Index> after_a = golden.ids("generated"), after_b = golden.ids("generated_b");
    const Index na = static_cast<Index>(a.size()), nb = static_cast<Index>(b.size());
    REQUIRE(na != nb);
    const Truth truth_a(m, a, fed), truth_b(m, b, fed);
    for (const int tp : legal_up_to(m.model.shape, 3)) {
      CAPTURE(name, tp);
      Run<Exact> first, second;
      on_ranks<Exact>(m, tp, DType::f64, [&](Communicator&, Exact& on, CausalLM<Exact>& net) {
        auto caches = net.make_caches();
        const auto step = [&](std::vector<Index> ids, const std::vector<Index>& more, Index past_a,
                              Index past_b) {
          const Index n = static_cast<Index>(ids.size()), k = static_cast<Index>(more.size());
          ids.insert(ids.end(), more.begin(), more.end());
          const auto y = net.forward(ids, Batch({{3, past_a, n}, {1, past_b, k}}), caches,
                                     LogitsOf::all_tokens);
          if (!y) return;
          first.logits.push_back(on.slice(*y, 0, 0, n));
          second.logits.push_back(on.slice(*y, 0, n, k));
        };
        step(a, b, 0, 0);
        for (Index i = 0; i < fed; ++i) {
          const auto at = static_cast<std::size_t>(i);
          step({after_a[at]}, {after_b[at]}, na + i, nb + i);
        }
      });
      for (const Distance& d :
           {distance(first, golden, truth_a, ""), distance(second, golden, truth_b, "_b")}) {
        CHECK(d.ratio <= 1);
        CHECK(d.largest < near_in_double);
      }
    }
  }
}

}  // namespace tpsim::test::golden_logits_tests
