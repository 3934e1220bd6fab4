// SPDX-License-Identifier: MIT
// The numeric backend's positions and attention: what they compute, and that their bits depend
// on nothing that a sharding may change.
#include <tests/support/catch.hpp>
#include <tests/support/decoder_truth.hpp>

namespace decoder_ops_eigen_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_decoder;

/// One sequence for every shape of attention that models have.
struct Sequence {
  AttentionSpec spec;
  bool sinks = false;
  std::string what;
};
std::vector<Sequence> sequences() {
  AttentionSpec plain;
  plain.heads = 6, plain.kv_heads = 6, plain.head_dim = 20, plain.v_head_dim = 20;
  plain.scale_dim = 20;
  std::vector<Sequence> out{{plain, false, "every head its own keys"}};
  const auto with = [&](const std::string& what, const auto& change, bool sinks = false) {
    Sequence s{plain, sinks, what};
    change(s.spec);
    out.push_back(s);
  };
  with("grouped queries", [](AttentionSpec& s) { s.kv_heads = 2; });
  with("one kv head", [](AttentionSpec& s) { s.kv_heads = 1; });
  with("a window", [](AttentionSpec& s) { s.window = 3; });
  with("slopes of 12 heads, from head 4", [](AttentionSpec& s) { s.alibi = Alibi{4, 12}; });
  with(
      "sinks", [](AttentionSpec&) {}, true);
  with("narrow values and another scale",
       [](AttentionSpec& s) { s.v_head_dim = 7, s.scale_dim = 64; });
  with(
      "everything at once",
      [](AttentionSpec& s) {
        s.kv_heads = 3, s.window = 4, s.alibi = Alibi{6, 12}, s.v_head_dim = 9;
      },
      true);
  return out;
}
template <class Real>
struct Inputs {
  eigen::Tensor<Real> q, k, v;
  eigen::Param sinks;
  Inputs(const EigenBackend<Real>& b, const Sequence& s, Index tokens)
      : q(b.activation("q", {tokens, s.spec.heads * s.spec.head_dim})),
        k(b.activation("k", {tokens, s.spec.kv_heads * s.spec.head_dim})),
        v(b.activation("v", {tokens, s.spec.kv_heads * s.spec.v_head_dim})),
        sinks(load(b, full("sinks", Shape(s.spec.heads)))) {}
  [[nodiscard]] const eigen::Param* sink(const Sequence& s) const {
    return s.sinks ? &sinks : nullptr;
  }
};

TEST_CASE("attention: every shape of it is the softmax written out") {
  const EigenBackend<double> b;
  for (const Sequence& s : sequences()) {
    INFO(s.what);
    const Inputs<double> in(b, s, 11);
    const auto y = b.attention(in.q, in.k, in.v, s.spec, in.sink(s));
    const Exact truth = exact_attention(s.spec, exact(in.q), exact(in.k), exact(in.v), in.sink(s));
    CHECK((exact(y) - truth).cwiseAbs().maxCoeff() < 1e-14L);
    // none of the sequences is another one in disguise
    if (s.what == sequences()[0].what) continue;
    AttentionSpec plain = s.spec;
    plain.window.reset(), plain.alibi.reset();
    plain.scale_dim = 20;
    const Exact other = exact_attention(plain, exact(in.q), exact(in.k), exact(in.v), nullptr);
    if (s.spec.kv_heads == 6) CHECK((other - truth).cwiseAbs().maxCoeff() > 1e-3L);
  }
}

TEST_CASE("attention: a prompt at once, in chunks and token by token has the same bits") {
  const DType rule = GENERATE(DType::f32, DType::bf16, DType::f16);
  const Float b(0, rule);
  for (const Sequence& s : sequences()) {
    INFO(s.what);
    const Inputs<float> in(b, s, 11);
    const auto whole = b.attention(in.q, in.k, in.v, s.spec, in.sink(s));
    for (const std::vector<Index>& cuts :
         {std::vector<Index>{0, 4, 9, 11}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
      Tensors<float> parts;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        AttentionSpec later = s.spec;
        later.first_position = cuts[i];
        parts.push_back(b.attention(rows(b, in.q, cuts[i], cuts[i + 1] - cuts[i]),
                                    rows(b, in.k, 0, cuts[i + 1]), rows(b, in.v, 0, cuts[i + 1]),
                                    later, in.sink(s)));
      }
      CHECK(same_bits(joined(b, parts, 0).value, whole.value));
    }
  }
}

TEST_CASE("attention: a head has the same bits whatever other heads its rank holds") {
  const Float b(0, DType::bf16);
  for (const Sequence& s : sequences()) {
    INFO(s.what);
    const Inputs<float> in(b, s, 11);
    const auto whole = b.attention(in.q, in.k, in.v, s.spec, in.sink(s));
    const Index group = s.spec.group(), dim = s.spec.head_dim, v_dim = s.spec.v_head_dim;
    Tensors<float> parts;
    for (Index kv = 0; kv < s.spec.kv_heads; ++kv) {  // one rank for each kv head
      AttentionSpec mine = s.spec;
      mine.heads = group, mine.kv_heads = 1;
      if (mine.alibi) mine.alibi->first_head += kv * group;
      const auto sinks = load(b, full("sinks", Shape(s.spec.heads)), 0, kv * group, group);
      parts.push_back(b.attention(
          columns(b, in.q, kv * group * dim, group * dim), columns(b, in.k, kv * dim, dim),
          columns(b, in.v, kv * v_dim, v_dim), mine, s.sinks ? &sinks : nullptr));
    }
    CHECK(same_bits(joined(b, parts, 1).value, whole.value));
  }
}

TEST_CASE("attention, norms and positions: bits and bounds do not depend on the threads") {
  const EigenOptions options{.values = {}, .track_bounds = true};
  const Float b(0, DType::bf16, options);
  Sequence s{
      {.heads = 16, .kv_heads = 4, .head_dim = 64, .v_head_dim = 64, .scale_dim = 64}, true, ""};
  const Inputs<float> in(b, s, 24);
  const RopeSpec turn{.rotary_dim = 64};
  std::vector<Index> positions(24);
  std::iota(positions.begin(), positions.end(), Index{5});
  const auto all = [&](int threads) {
    const Threads set(threads);
    const auto q = b.rope(in.q, positions, 64, turn);
    const auto y = b.attention(q, in.k, in.v, s.spec, &in.sinks);
    const auto squares = b.square_sums(y, 1024);
    return Tensors<float>{
        q, y, squares, b.rms_normalized(y, squares, 1024, 1e-6), b.gelu(y), b.gelu_tanh(y)};
  };
  const auto one = all(1), many = all(7);
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(same_bits(one[i].value, many[i].value));
    CHECK(same_bits(one[i].bound, many[i].bound));
  }
}

TEST_CASE("attention: what a token does not see cannot reach it") {
  const Float b;
  Sequence s{
      {.heads = 2, .kv_heads = 1, .head_dim = 8, .v_head_dim = 8, .scale_dim = 8}, false, ""};
  s.spec.window = 2;
  const Inputs<float> in(b, s, 5);
  const auto clean = b.attention(in.q, in.k, in.v, s.spec, nullptr);
  Inputs<float> poisoned = in;
  poisoned.k.value.row(2).setConstant(std::numeric_limits<float>::quiet_NaN());
  poisoned.v.value.row(2).setConstant(std::numeric_limits<float>::quiet_NaN());
  const auto y = b.attention(poisoned.q, poisoned.k, poisoned.v, s.spec, nullptr);
  for (const Index t : {0, 1, 4})
    CHECK(same_bits(rows(b, y, t, 1).value, rows(b, clean, t, 1).value));
  for (const Index t : {2, 3}) CHECK(y.value.row(t).array().isNaN().all());
  // a sink that no loader wrote shows as well
  const eigen::Param unwritten = b.empty("sinks", Shape(2));
  CHECK(b.attention(in.q, in.k, in.v, s.spec, &unwritten).value.array().isNaN().all());
}

TEST_CASE("attention: great scores neither overflow nor lose the largest") {
  const Float b(0, DType::f32, {.values = {}, .track_bounds = true});
  AttentionSpec s{.heads = 1, .kv_heads = 1, .head_dim = 1, .v_head_dim = 1, .scale_dim = 1};
  s.first_position = 2;
  const auto column = [&](std::vector<float> values) {
    return b.input(Matrix<float>(
        Eigen::Map<Matrix<float>>(values.data(), static_cast<Index>(values.size()), 1)));
  };
  const auto y = b.attention(column({1e4F}), column({-1e4F, 3, 2}), column({7, 5, 11}), s, nullptr);
  CHECK(y.value(0, 0) == 5);
  CHECK(y.bound(0, 0) < 1e-6);
}

TEST_CASE("rope: interleaved pairs are half-split pairs in another order") {
  const Float b(0, DType::bf16);
  const Index dim = 12, heads = 3;
  const auto x = b.activation("x", {4, heads * dim});
  auto shuffled = x;  // column 2 j and 2 j + 1 of a head := its columns j and j + dim / 2
  const auto shuffle = [&](const eigen::Tensor<float>& from) {
    auto to = from;
    for (Index h = 0; h < heads; ++h)
      for (Index j = 0; j < dim / 2; ++j) {
        to.value.col(h * dim + 2 * j) = from.value.col(h * dim + j);
        to.value.col(h * dim + 2 * j + 1) = from.value.col(h * dim + j + dim / 2);
      }
    return to;
  };
  const std::vector<Index> positions{0, 1, 77, 4095};
  RopeSpec spec{.rotary_dim = dim};
  const auto half = b.rope(x, positions, dim, spec);
  CHECK(same_bits(rows(b, half, 0, 1).value, rows(b, x, 0, 1).value));  // position 0 turns nothing
  CHECK_FALSE(same_bits(rows(b, half, 1, 1).value, rows(b, x, 1, 1).value));
  spec.style = RopeStyle::interleaved;
  CHECK(same_bits(b.rope(shuffle(x), positions, dim, spec).value, shuffle(half).value));
  CHECK_FALSE(same_bits(b.rope(x, positions, dim, spec).value, half.value));
}

TEST_CASE("rope: a partial head turns as the smaller head that its part is; the rest stays") {
  const Float b(0, DType::bf16, {.values = {}, .track_bounds = true});
  const auto style = GENERATE(RopeStyle::half_split, RopeStyle::interleaved);
  const auto x = b.activation("x", {3, 20});  // two heads of 10, of which 4 columns turn
  const std::vector<Index> positions{3, 1, 2};
  const RopeSpec spec{.rotary_dim = 4, .style = style};
  const auto y = b.rope(x, positions, 10, spec);
  for (const Index head : {0, 10}) {
    const auto part = b.rope(columns(b, x, head, 4), positions, 4, spec);
    CHECK(same_bits(columns(b, y, head, 4).value, part.value));
    CHECK(same_bits(columns(b, y, head + 4, 6).value, columns(b, x, head + 4, 6).value));
    CHECK(y.bound.middleCols(head + 4, 6).maxCoeff() == 0);
    CHECK(y.bound.middleCols(head, 4).minCoeff() > 0);
  }
}

TEST_CASE("rope: scores depend on the distance of two positions alone") {
  const EigenBackend<double> b;
  const auto q = b.activation("q", {1, 16}), k = b.activation("k", {1, 16});
  const RopeSpec spec{.rotary_dim = 16, .theta = 500000};
  const auto score = [&](Index m, Index n) {
    return b.rope(q, {m}, 16, spec).value.cwiseProduct(b.rope(k, {n}, 16, spec).value).sum();
  };
  CHECK(std::abs(score(7, 3) - score(1007, 1003)) < 1e-12);
  CHECK(std::abs(score(7, 3) - score(3, 7)) > 1e-3);
}

// Computed apart from this program, by wave lengths as the models' own code does.
TEST_CASE("rope: the frequencies of Llama 3.1") {
  const RopeSpec spec{.rotary_dim = 128,
                      .theta = 500000,
                      .scaling = RopeScaling::llama3,
                      .factor = 8,
                      .original_positions = 8192};
  const auto f = rope_frequencies(spec);
  const std::vector<std::pair<std::size_t, double>> known{{0, 1.0},
                                                          {1, 0.8146172338565447},
                                                          {28, 0.0032114459947525913},
                                                          {29, 0.002166570763503359},
                                                          {30, 0.0013718935677611381},
                                                          {34, 0.00017850781276799638},
                                                          {35, 9.556212353964683e-05},
                                                          {36, 7.78465527393245e-05},
                                                          {63, 3.068925988914511e-07}};
  REQUIRE(f.size() == 64);
  for (const auto& [j, value] : known) CHECK(f[j] == Approx(value).epsilon(1e-12));
  CHECK(rope_magnitude(spec) == 1);
}
TEST_CASE("rope: the frequencies of YaRN by 40") {
  RopeSpec spec{.rotary_dim = 64,
                .theta = 10000,
                .scaling = RopeScaling::yarn,
                .factor = 40,
                .original_positions = 4096};
  const auto f = rope_frequencies(spec);
  const std::vector<std::pair<std::size_t, double>> known{{0, 1.0},
                                                          {1, 0.7498942093324559},
                                                          {10, 0.056234132519034905},
                                                          {11, 0.03900692656714386},
                                                          {15, 0.008334508951020777},
                                                          {22, 0.0001778279410038922},
                                                          {23, 3.33380358040831e-05},
                                                          {31, 3.33380358040831e-06}};
  REQUIRE(f.size() == 32);
  for (const auto& [j, value] : known) CHECK(f[j] == Approx(value).epsilon(1e-12));
  CHECK(rope_magnitude(spec) == Approx(1.3688879454113936).epsilon(1e-14));
  // cos and sin are that much longer
  const EigenBackend<double> b;
  const auto x = b.activation("x", {1, 64});
  CHECK(b.rope(x, {9}, 64, spec).value.norm() ==
        Approx(1.3688879454113936 * x.value.norm()).epsilon(1e-14));
  spec.attention_factor = 1;
  CHECK(b.rope(x, {9}, 64, spec).value.norm() == Approx(x.value.norm()).epsilon(1e-14));
}

TEST_CASE("decoder operations: what does not fit is refused with everything that is wrong") {
  const Float b;
  const auto x = b.activation("x", {3, 12});
  const auto rules_of = [](const auto& f) {
    try {
      f();
    } catch (const LayoutError& e) {
      return e.violations().size();
    }
    return std::size_t{0};
  };
  CHECK(rules_of([&] { return b.column_sums(x, 5); }) == 1);
  CHECK(rules_of([&] { return b.square_sums(x, 0); }) == 1);
  CHECK(rules_of([&] { return b.centered(x, rows(b, x, 0, 2), 4); }) == 1);
  CHECK(rules_of([&] { return b.rms_normalized(x, b.activation("s", {3, 5}), 4, 0); }) == 1);
  CHECK(rules_of([&] { return b.mul_columns(x, load(b, full("w", Shape(5)))); }) == 1);
  CHECK(rules_of([&] { return b.rope(x, {1, 2}, 5, {.rotary_dim = 6}); }) == 3);
  CHECK(rules_of([&] { return b.add_unrounded(x, rows(b, x, 0, 2)); }) == 1);
  AttentionSpec s{.heads = 3, .kv_heads = 1, .head_dim = 4, .v_head_dim = 4, .scale_dim = 4};
  const auto kv = b.activation("k", {3, 4});
  const auto sinks = load(b, full("s", Shape(2)));
  CHECK(rules_of([&] { return b.attention(x, kv, kv, s, nullptr); }) == 0);
  CHECK(rules_of([&] { return b.attention(x, x, kv, s, &sinks); }) == 2);
}

}  // namespace

}  // namespace decoder_ops_eigen_tests
