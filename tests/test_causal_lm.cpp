// SPDX-License-Identifier: MIT
// A whole decoder on virtual ranks: its logits are full()'s, whatever the steps; what it calls.
#include <algorithm>
#include <memory>
#include <string>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

#include <tpsim/backend/field/field_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/causal_lm.hpp>
#include <tpsim/verify/decoder_plan.hpp>
#include <tpsim/verify/decoder_steps.hpp>
#include <tpsim/verify/plan_subject.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace causal_lm_tests {

using namespace tpsim;

namespace {

using Ids = std::vector<Index>;
using Logits = std::vector<gf61::Element>;

/// Two layers that differ: heads * head_dim is not hidden, the vocabulary leaves padding.
CausalLMShape small_model() {
  CausalLMShape s;
  DecoderShape first;
  first.attention.qkv = {10, 4, 8, 2, 0};
  first.attention.rope = RopeSpec{4};
  first.attention.qk_norm = QkNorm::per_head;
  first.intermediate = 16;
  DecoderShape second = first;
  second.attention.qk_norm = QkNorm::none;
  second.attention.window = 3;
  second.attention.qkv_bias = second.attention.o_bias = second.mlp_bias = true;
  s.layers = {first, second};
  s.vocab = {19, 10, 8};
  return s;
}

DiskTensor tensor(const std::string& name, Shape shape, const std::string& param) {
  const auto logical = std::make_shared<LogicalTensor>(name, shape);
  return detail::disk_tensor(name, shape, RowLayout({{"", Runs::range(0, shape.rows())}}),
                             {logical}, param, {});
}
/// Every tensor of the model, q, k, v, gate and up apart.
std::vector<DiskTensor> checkpoint(const CausalLMShape& s) {
  std::vector<DiskTensor> out;
  const Shape table(s.vocab.vocab, s.vocab.hidden);
  out.push_back(tensor("embed_tokens.weight", table, "embed_tokens.weight"));
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    for (const BoundTensor& t : bind_plan(decoder_plan(s.layers[i], DecoderPart::layer)).tensors) {
      const Shape shape = t.shape_of(t.layout.rows());
      const auto logical = std::make_shared<LogicalTensor>(prefix + t.parts[0].tensor, shape);
      out.push_back(
          detail::disk_tensor(logical->name, shape, t.layout, {logical}, prefix + t.param, {}));
    }
  }
  out.push_back(tensor("norm.weight", Shape(s.vocab.hidden), "norm.weight"));
  if (s.norm == NormKind::layer)
    out.push_back(tensor("norm.bias", Shape(s.vocab.hidden), "norm.bias"));
  if (!s.tied) out.push_back(tensor("lm_head.weight", table, "lm_head.weight"));
  return out;
}

void load(CausalLM<FieldBackend>& model, const std::vector<DiskTensor>& tensors) {
  for (const DiskTensor& t : tensors) {
    int found = 0;
    model.for_each_layer([&](const std::string& prefix, auto& layer) {
      if (t.param != prefix + "weight" && t.param != prefix + "bias") return;
      load_tensor(layer, t.param == prefix + "bias", t.view(), t.layout);
      ++found;
    });
    INFO(t.param);
    REQUIRE(found == 1);
  }
}

struct Outcome {
  std::vector<std::vector<Logits>> logits;  ///< [rank][row]; no rows on ranks that get none
  Trace trace;
};
std::vector<Logits> rows_of(const FieldTensor& t) {
  std::vector<Logits> out;
  for (Index r = 0; r < t.tokens; ++r) out.emplace_back(t.row(r), t.row(r) + t.cols);
  return out;
}

/// What the ranks return for whole sequences of `lengths` computed in steps, in the order of the
/// tokens.
Outcome run(const CausalLMShape& s, int tp, const Ids& ids, const std::vector<Index>& lengths,
            DecoderSteps how, LogitsOf which = LogitsOf::all_tokens) {
  Outcome out;
  out.logits.resize(static_cast<std::size_t>(tp));
  const auto context = std::make_shared<FieldContext>(FieldContext{11});
  VirtualRanks world{tp};
  world.run([&](Communicator& comm) {
    FieldBackend b(context, comm.rank());
    CausalLM<FieldBackend> model(b, comm, s);
    load(model, checkpoint(s));
    auto caches = model.make_caches();
    std::vector<Logits>& mine = out.logits[static_cast<std::size_t>(comm.rank())];
    if (which == LogitsOf::all_tokens) mine.resize(ids.size());
    for (const StepRows& step : steps_of(lengths, how)) {
      Ids now;
      for (const Index row : step.rows) now.push_back(ids[static_cast<std::size_t>(row)]);
      const auto y = model.forward(now, step.batch, caches, which);
      if (!y) {
        mine.clear();
        continue;
      }
      const std::vector<Logits> rows = rows_of(*y);
      if (which == LogitsOf::last_tokens)
        mine = rows;
      else
        for (std::size_t i = 0; i < rows.size(); ++i)
          mine[static_cast<std::size_t>(step.rows[i])] = rows[i];
    }
  });
  out.trace = world.trace();
  return out;
}
std::vector<Logits> full(const CausalLMShape& s, const Ids& ids,
                         const std::vector<Index>& lengths) {
  FieldBackend b(std::make_shared<FieldContext>(FieldContext{11}), 0);
  return rows_of(CausalLM<FieldBackend>::full(b, ids, lengths, full_params(b, checkpoint(s)), s));
}

const Ids ids{0, 18, 7, 3, 9, 5, 12, 1};  // first and last row of the vocabulary among them
const std::vector<Index> lengths{5, 3};

Index count(const Trace& trace, CollectiveOp op) {
  return std::count_if(trace.begin(), trace.end(),
                       [&](const CollectiveRecord& r) { return r.op == op; });
}

}  // namespace

TEST_CASE("causal lm: logits are full()'s at every tp, in a prefill, in chunks and one by one") {
  for (const bool tied : {false, true}) {
    CausalLMShape s = small_model();
    s.tied = tied;
    const std::vector<Logits> wanted = full(s, ids, lengths);
    for (const int tp : {1, 2, 4, 8})
      for (const Index chunk : {0, 2, 1}) {
        CAPTURE(tied, tp, chunk);
        const Outcome have = run(s, tp, ids, lengths, {chunk});
        CHECK(have.logits[0] == wanted);
        for (int r = 1; r < tp; ++r) CHECK(have.logits[static_cast<std::size_t>(r)].empty());
      }
  }
}

TEST_CASE("causal lm: every rank gets the logits when they are gathered to all") {
  CausalLMShape s = small_model();
  s.gather_to_all = true;
  const std::vector<Logits> wanted = full(s, ids, lengths);
  const Outcome have = run(s, 4, ids, lengths, {});
  for (const auto& mine : have.logits) CHECK(mine == wanted);
  CHECK(count(have.trace, CollectiveOp::all_gather) == 1);
  CHECK(count(have.trace, CollectiveOp::gather) == 0);
}

TEST_CASE("causal lm: layer norms, plain MLPs and a parallel residual are full()'s too") {
  CausalLMShape s = small_model();
  s.norm = NormKind::layer;
  for (DecoderShape& layer : s.layers) {
    layer.norm = NormKind::layer;
    layer.gated = false;
    layer.activation = Activation::gelu;
    layer.parallel_residual = true;
    layer.attention.alibi = true;
  }
  const std::vector<Logits> wanted = full(s, ids, lengths);
  for (const int tp : {1, 2, 4, 8}) {
    const Outcome have = run(s, tp, ids, lengths, {});
    CHECK(have.logits[0] == wanted);
    if (tp > 1) CHECK(count(have.trace, CollectiveOp::all_reduce) == 1 + 2);
  }
}

TEST_CASE("causal lm: one all_reduce for the embedding, two a layer, one gather, of known bytes") {
  const CausalLMShape s = small_model();
  const int tp = 4;
  const Outcome have = run(s, tp, ids, lengths, {}, LogitsOf::last_tokens);
  REQUIRE(have.trace.size() == 1 + 2 * s.layers.size() + 1);
  const Index tokens = 8, padded = 24;
  for (std::size_t i = 0; i + 1 < have.trace.size(); ++i) {
    CHECK(have.trace[i].op == CollectiveOp::all_reduce);
    CHECK(have.trace[i].shape == Shape(tokens, s.vocab.hidden));
    CHECK(have.trace[i].bytes == tokens * s.vocab.hidden * bytes_of(DType::field));
  }
  const CollectiveRecord& last = have.trace.back();
  CHECK(last.op == CollectiveOp::gather);
  // The head sees the last token of each sequence, not all tokens.
  CHECK(last.shape == Shape(static_cast<Index>(lengths.size()), padded / tp));
  CHECK(run(s, 1, ids, lengths, {}).trace.empty());
}

TEST_CASE("causal lm: the last token of each sequence is what a step of last tokens returns") {
  const CausalLMShape s = small_model();
  const std::vector<Logits> all = full(s, ids, lengths);
  const Outcome have = run(s, 2, ids, lengths, {}, LogitsOf::last_tokens);
  CHECK(have.logits[0] == std::vector<Logits>{all[4], all[7]});
}

TEST_CASE("causal lm: what it cannot compute is refused") {
  using test::missing;
  CausalLMShape s = small_model();
  s.max_positions = 4;
  CHECK(missing([&] { (void)run(s, 2, ids, lengths, {}); },
                {"the sequence is longer than the cache", "room for 4"}) == "");
  s.max_positions = 5;
  CHECK_NOTHROW(run(s, 2, ids, lengths, {}));
  Ids unknown = ids;
  unknown[3] = 19;
  CHECK(missing([&] { (void)run(s, 2, unknown, lengths, {}); },
                {"there is no token 19", "0 to 18"}) == "");
  CHECK_THROWS_AS(Batch({{0, 0, 2}, {0, 0, 1}}), LayoutError);
  CHECK_THROWS_AS(Batch({{0, 0, 0}}), LayoutError);
  // Every broken rule at once, each once though two layers break it.
  const std::vector<Violation> broken = causal_lm_violations(small_model(), 3);
  REQUIRE(broken.size() == 3);
  CHECK(broken[0].message == "8 query heads over 3 ranks leaves 2");
  CHECK_THROWS_AS(run(small_model(), 3, ids, lengths, {}), LayoutError);
}

TEST_CASE("causal lm: a cache that holds other tokens than the step goes on from is refused") {
  using test::missing;
  const CausalLMShape s = small_model();
  FieldBackend b(std::make_shared<FieldContext>(FieldContext{11}), 0);
  VirtualRanks world{1};
  world.run([&](Communicator& comm) {
    CausalLM<FieldBackend> model(b, comm, s);
    load(model, checkpoint(s));
    auto caches = model.make_caches();
    const auto forward = [&](const Ids& now, const Batch& batch) {
      return [&, now, batch] { (void)model.forward(now, batch, caches); };
    };
    const std::string other = "the cache holds other tokens";
    CHECK(missing(forward({1, 2}, Batch({{0, 3, 2}})), {other, "has 0 tokens", "not 3"}) == "");
    forward({1, 2}, Batch::prefill({2}))();
    CHECK(missing(forward({1, 2}, Batch::prefill({2})), {other, "has 2 tokens", "not 0"}) == "");
    CHECK(missing(forward({1, 2, 3}, Batch({{0, 2, 2}})), {"other tokens", "3 ids for 2"}) == "");
  });
}

}  // namespace causal_lm_tests
