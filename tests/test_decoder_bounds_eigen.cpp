// SPDX-License-Identifier: MIT
// The numeric backend's norms, positions and attention: every error stays within its bound, for
// exact and for inexact inputs, and the bound says something.
#include <rapidcheck.h>

#include <map>

#include <tests/support/catch.hpp>
#include <tests/support/decoder_truth.hpp>

namespace decoder_bounds_eigen_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_decoder;

/// The largest error over its bound, for each operation.
class WorstRatios {
 public:
  template <class Real>
  void see(const std::string& operation, const eigen::Tensor<Real>& y, const Exact& truth) {
    const double r = ratio(y, truth);
    RC_ASSERT(r <= 1.0);
    RC_ASSERT(y.bound.maxCoeff() < std::numeric_limits<double>::infinity());
    largest_[operation] = std::max(largest_[operation], r);
  }
  void forget(const std::string& operation) { largest_.erase(operation); }
  [[nodiscard]] const auto& all() const { return largest_; }

 private:
  std::map<std::string, double> largest_;
};

struct Draw {
  DType rule;
  double noise;
  std::uint64_t seed;
};
template <class Real>
EigenBackend<Real> tracking(DType rule) {
  return EigenBackend<Real>(0, rule, {.values = {}, .track_bounds = true});
}

template <class Real>
void see_rows(WorstRatios& worst, const Draw& d, Index tokens, Index groups, Index group) {
  const EigenBackend<Real> b = tracking<Real>(d.rule);
  std::mt19937_64 rng(d.seed);
  const Index cols = groups * group;
  const auto x = held(b, rng, tokens, cols, d.noise, 4), y = held(b, rng, tokens, cols, d.noise);
  worst.see("add", b.add(x.tensor, y.tensor), x.truth + y.truth);
  const auto sum = b.add_unrounded(x.tensor, y.tensor);
  worst.see("add_unrounded", sum, x.truth + y.truth);
  worst.see("rounded", b.rounded(sum), x.truth + y.truth);
  const auto w = load(b, full("w", Shape(group)));
  worst.see("mul_columns", b.mul_columns(x.tensor, w), exact_columns(x.truth, w));
  worst.see("gelu", b.gelu(x.tensor), x.truth.unaryExpr([](Wide v) { return exact_gelu(v); }));
  worst.see("gelu_tanh", b.gelu_tanh(x.tensor),
            x.truth.unaryExpr([](Wide v) { return exact_gelu_tanh(v); }));

  // Statistics of their own rows, and statistics that bring errors of their own.
  const auto sums = b.column_sums(x.tensor, group), squares = b.square_sums(x.tensor, group);
  const Exact true_sums = exact_sums(x.truth, groups, 1),
              true_squares = exact_sums(x.truth, groups, 2);
  worst.see("column_sums", sums, true_sums);
  worst.see("square_sums", squares, true_squares);
  worst.see("centered", b.centered(x.tensor, sums, group),
            exact_centered(x.truth, true_sums, group));
  worst.see("rms_normalized", b.rms_normalized(x.tensor, squares, group, 1e-5),
            exact_normalized(x.truth, true_squares, group, 1e-5));
  auto other = held(b, rng, tokens, groups, d.noise);
  worst.see("centered by another's sums", b.centered(x.tensor, other.tensor, 3),
            exact_centered(x.truth, other.truth, 3));
  other.tensor.value = other.tensor.value.cwiseAbs();
  other.truth = other.truth.cwiseAbs();
  worst.see("rms_normalized by another's sums", b.rms_normalized(x.tensor, other.tensor, 3, 1e-5),
            exact_normalized(x.truth, other.truth, 3, 1e-5));

  // The chain that a layer norm is, from an unrounded sum. (Of one or two columns nothing may be
  // left in the middle but errors, and nothing known of its root.)
  if (cols < 3) return;
  const auto mean = b.column_sums(sum, cols);
  const Exact truth = x.truth + y.truth, true_mean = exact_sums(truth, 1, 1);
  const auto middle = b.centered(sum, mean, cols);
  const Exact true_middle = exact_centered(truth, true_mean, cols);
  const auto norm = b.rms_normalized(middle, b.square_sums(middle, cols), cols, 1e-5);
  const auto bias = load(b, full("b", Shape(cols)));
  Exact true_norm =
      exact_columns(exact_normalized(true_middle, exact_sums(true_middle, 1, 2), cols, 1e-5), bias);
  worst.see("layer norm", b.mul_columns(norm, bias), true_norm);
}

template <class Real>
void see_heads(WorstRatios& worst, const Draw& d, const AttentionSpec& s, Index tokens,
               bool with_sinks, const RopeSpec& turn) {
  const EigenBackend<Real> b = tracking<Real>(d.rule);
  std::mt19937_64 rng(d.seed);
  const Index context = s.first_position + tokens;
  const auto q = held(b, rng, tokens, s.heads * s.head_dim, d.noise);
  const auto k = held(b, rng, context, s.kv_heads * s.head_dim, d.noise);
  const auto v = held(b, rng, context, s.kv_heads * s.v_head_dim, d.noise);
  const auto sinks = load(b, full("sinks", Shape(s.heads)));
  const eigen::Param* sink = with_sinks ? &sinks : nullptr;
  worst.see("attention", b.attention(q.tensor, k.tensor, v.tensor, s, sink),
            exact_attention(s, q.truth, k.truth, v.truth, sink));
  // Exact values: the scores' errors alone, small and beyond any use.
  const Held<Real> values = held(b, rng, context, s.kv_heads * s.v_head_dim);
  worst.see("attention by inexact scores", b.attention(q.tensor, k.tensor, values.tensor, s, sink),
            exact_attention(s, q.truth, k.truth, values.truth, sink));
  const auto lost = held(b, rng, tokens, s.heads * s.head_dim, 400 * d.noise, 40);
  worst.see("attention by lost scores", b.attention(lost.tensor, k.tensor, values.tensor, s, sink),
            exact_attention(s, lost.truth, k.truth, values.truth, sink));
  std::vector<Index> positions;
  for (Index t = 0; t < tokens; ++t) positions.push_back(s.first_position + t * t * 37);
  const auto turned = b.rope(q.tensor, positions, s.head_dim, turn);
  const Exact true_turned = exact_rope(q.truth, positions, s.head_dim, turn.rotary_dim,
                                       turn.style == RopeStyle::interleaved, rope_frequencies(turn),
                                       rope_magnitude(turn));
  worst.see("rope", turned, true_turned);
  worst.see("attention of turned heads", b.attention(turned, k.tensor, v.tensor, s, sink),
            exact_attention(s, true_turned, k.truth, v.truth, sink));
}

WorstRatios drawn_ratios(DType rule, double noise) {
  WorstRatios worst;
  CHECK(rc::check("bounds hold", [&] {
    const Draw d{rule, noise, *rc::gen::arbitrary<std::uint64_t>()};
    const Index tokens = *rc::gen::inRange<Index>(1, 6), groups = *rc::gen::inRange<Index>(1, 4),
                group = *rc::gen::element<Index>(1, 2, 7, 8, 33, 130);
    AttentionSpec s;
    s.kv_heads = *rc::gen::inRange<Index>(1, 4);
    s.heads = s.kv_heads * *rc::gen::inRange<Index>(1, 4);
    s.head_dim = 2 * *rc::gen::inRange<Index>(1, 12), s.v_head_dim = *rc::gen::inRange<Index>(1, 9);
    s.scale_dim = s.head_dim;
    s.first_position = *rc::gen::inRange<Index>(0, 12);
    if (*rc::gen::arbitrary<bool>()) s.window = *rc::gen::inRange<Index>(1, 9);
    if (*rc::gen::arbitrary<bool>()) s.alibi = Alibi{s.heads, 3 * s.heads};
    const bool sinks = *rc::gen::arbitrary<bool>();
    RopeSpec turn;
    turn.rotary_dim = 2 * *rc::gen::inRange<Index>(1, s.head_dim / 2 + 1);
    turn.style = *rc::gen::element(RopeStyle::half_split, RopeStyle::interleaved);
    turn.scaling = *rc::gen::element(RopeScaling::none, RopeScaling::linear, RopeScaling::llama3,
                                     RopeScaling::yarn);
    turn.factor = 4, turn.original_positions = 64;
    if (rule == DType::f64) {
      see_rows<double>(worst, d, tokens, groups, group);
      see_heads<double>(worst, d, s, tokens, sinks, turn);
    } else {
      see_rows<float>(worst, d, tokens, groups, group);
      see_heads<float>(worst, d, s, tokens, sinks, turn);
    }
  }));
  for (const auto& [operation, largest] : worst.all()) UNSCOPED_INFO(operation << ": " << largest);
  return worst;
}

/// No bound is so wide that its worst case is far from what happens.
void check_that_all_say_something(const WorstRatios& worst, double least) {
  for (const auto& [operation, largest] : worst.all()) {
    INFO(operation);
    CHECK(largest > least);
  }
}

TEST_CASE("decoder bounds: exact inputs, what is stored dominates") {
  const DType rule = GENERATE(DType::f32, DType::bf16, DType::f16);
  CAPTURE(name(rule));
  WorstRatios worst = drawn_ratios(rule, 0);
  // sums of a few narrow numbers are often exact in f32
  if (rule != DType::f32)
    for (const char* wide : {"add_unrounded", "column_sums"}) worst.forget(wide);
  check_that_all_say_something(worst, 0.35);
}
TEST_CASE("decoder bounds: exact inputs in double, whose own arithmetic is bounded") {
  check_that_all_say_something(drawn_ratios(DType::f64, 0), 0.07);
}
TEST_CASE("decoder bounds: inexact inputs carry their errors through") {
  const DType rule = GENERATE(DType::f64, DType::bf16);
  const double noise = GENERATE(1e-2, 1e-5);
  CAPTURE(name(rule), noise);
  check_that_all_say_something(drawn_ratios(rule, noise), 0.5);
}

TEST_CASE("decoder bounds: nothing is known of a root whose sum of squares may be zero") {
  const EigenBackend<double> b = tracking<double>(DType::f64);
  const auto constant = [](double value, double bound) {
    return eigen::Tensor<double>{Matrix<double>::Constant(1, 1, value),
                                 Matrix<double>::Constant(1, 1, bound)};
  };
  const auto x = constant(1, 0);
  CHECK(b.rms_normalized(x, constant(1, 0.999), 1, 0).bound(0, 0) > 30);  // 1 / sqrt(0.001) - 1
  CHECK(b.rms_normalized(x, constant(1, 0.999), 1, 0).bound(0, 0) < 31);
  CHECK(b.rms_normalized(x, constant(1, 1), 1, 0).bound(0, 0) ==
        std::numeric_limits<double>::infinity());
  CHECK(b.rms_normalized(x, constant(1, 1), 1, 1).bound(0, 0) < 0.5);  // eps holds it
  CHECK(b.rms_normalized(constant(0, 0), constant(1, 1), 1, 0).bound(0, 0) < 1e-300);
}

}  // namespace

}  // namespace decoder_bounds_eigen_tests
