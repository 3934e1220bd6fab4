// SPDX-License-Identifier: MIT
// Norms, activations and rotary positions in the exact backend.
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>

#include <tests/support/catch.hpp>
#include <tests/support/decoder_field.hpp>

namespace tpsim::decoder_ops_field_tests {
namespace {

using gf61::Element, gf61::p;
using testing::differ_everywhere, testing::field_backend, testing::joined, testing::mean,
    testing::permuted, testing::summed;

std::vector<Index> positions(Index tokens, Index first = 0) {
  std::vector<Index> out(static_cast<std::size_t>(tokens));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// --- statistics ---

TEST_CASE("statistics: the ranks' shares of sums and square sums add up to the whole") {
  REQUIRE(rc::check([] {
    const Index tokens = *rc::gen::inRange<Index>(1, 4), width = *rc::gen::inRange<Index>(2, 300);
    FieldBackend b = field_backend();
    FieldTensor x = b.input("x", tokens, width);
    if (*rc::gen::arbitrary<bool>()) std::fill(x.values.begin(), x.values.end(), p - 1);
    std::vector<FieldTensor> sums, squares;
    for (Index begin = 0; begin < width;) {
      const Index length = *rc::gen::inRange<Index>(1, width - begin + 1);
      const FieldTensor share = b.slice(x, 1, begin, length);
      sums.push_back(b.column_sums(share, width));
      squares.push_back(b.square_sums(share, width));
      begin += length;
    }
    RC_ASSERT(summed(b, sums) == b.column_sums(x, width));
    RC_ASSERT(summed(b, squares) == b.square_sums(x, width));
    for (Index t = 0; t < tokens; ++t) {
      Element sum = 0, square = 0;
      for (Index c = 0; c < width; ++c) {
        sum = gf61::add(sum, x.at(t, c));
        square = gf61::add(square, gf61::mul(x.at(t, c), x.at(t, c)));
      }
      RC_ASSERT(b.column_sums(x, width).at(t, 0) == sum);
      RC_ASSERT(b.square_sums(x, width).at(t, 0) == square);
    }
  }));
}

TEST_CASE("statistics: several groups are each group's own, side by side") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 12);
  std::vector<FieldTensor> sums, squares, norms, centers;
  for (Index g = 0; g < 3; ++g) {
    const FieldTensor part = b.slice(x, 1, 4 * g, 4);
    sums.push_back(b.column_sums(part, 4));
    squares.push_back(b.square_sums(part, 4));
    centers.push_back(b.centered(part, sums.back(), 4));
    norms.push_back(b.rms_normalized(part, squares.back(), 4, 1e-6));
  }
  CHECK(b.column_sums(x, 4) == joined(b, sums, 1));
  CHECK(b.square_sums(x, 4) == joined(b, squares, 1));
  CHECK(b.centered(x, b.column_sums(x, 4), 4) == joined(b, centers, 1));
  CHECK(b.rms_normalized(x, b.square_sums(x, 4), 4, 1e-6) == joined(b, norms, 1));
}

TEST_CASE("norms: each rank's part with the summed statistics is its part of the whole norm") {
  constexpr Index width = 24;
  for (const Index tp : {2, 3, 4}) {
    FieldBackend b = field_backend();
    const FieldTensor x = b.input("x", 3, width);
    const FieldTensor center = b.centered(x, b.column_sums(x, width), width);
    const FieldTensor whole = b.rms_normalized(x, b.square_sums(x, width), width, 1e-5);
    const FieldTensor layer_norm =
        b.rms_normalized(center, b.square_sums(center, width), width, 1e-5);
    std::vector<FieldTensor> x_r, center_r, sums, squares, center_squares, norm, norm_of_center;
    for (Index r = 0; r < tp; ++r) x_r.push_back(b.slice(x, 1, r * width / tp, width / tp));
    for (const FieldTensor& part : x_r) {
      sums.push_back(b.column_sums(part, width));
      squares.push_back(b.square_sums(part, width));
    }
    for (const FieldTensor& part : x_r) {
      center_r.push_back(b.centered(part, summed(b, sums), width));
      center_squares.push_back(b.square_sums(center_r.back(), width));
      norm.push_back(b.rms_normalized(part, summed(b, squares), width, 1e-5));
    }
    for (const FieldTensor& part : center_r)
      norm_of_center.push_back(b.rms_normalized(part, summed(b, center_squares), width, 1e-5));
    CHECK(joined(b, norm, 1) == whole);
    CHECK(joined(b, center_r, 1) == center);
    CHECK(joined(b, norm_of_center, 1) == layer_norm);
    // local statistics in place of the whole ones
    CHECK(differ_everywhere(b.rms_normalized(x_r[0], squares[0], width / tp, 1e-5), norm[0]));
    CHECK(differ_everywhere(b.rms_normalized(x_r[0], squares[0], width, 1e-5), norm[0]));
  }
}

TEST_CASE("norms: another count or eps is another value") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 2, 8), squares = b.square_sums(x, 8);
  const FieldTensor norm = b.rms_normalized(x, squares, 8, 1e-6);
  CHECK(b.rms_normalized(x, squares, 8, 1e-6) == norm);
  CHECK(differ_everywhere(b.rms_normalized(x, squares, 4, 1e-6), norm));
  CHECK(differ_everywhere(b.rms_normalized(x, squares, 8, 1e-5), norm));
  CHECK(differ_everywhere(b.rms_normalized(x, squares, 8, 0), norm));
  const FieldTensor sums = b.column_sums(x, 8);
  CHECK(differ_everywhere(b.centered(x, sums, 4), b.centered(x, sums, 8)));
  // the mean of what is centered is 0
  CHECK(b.column_sums(b.centered(x, sums, 8), 8) == FieldTensor(2, 1));
}

TEST_CASE("norms: statistics of replicated kv heads count once when they are divided") {
  constexpr Index head_dim = 4, heads = 2, tp = 6, width = heads * head_dim;
  FieldBackend b = field_backend();
  const FieldTensor k = b.input("k", 3, width);
  std::vector<FieldTensor> shares;
  for (Index r = 0; r < tp; ++r)
    shares.push_back(b.square_sums(b.slice(k, 1, r / (tp / heads) * head_dim, head_dim), width));
  const FieldTensor all = summed(b, shares);
  CHECK(b.scale(all, Rational(heads, tp)) == b.square_sums(k, width));
  CHECK(differ_everywhere(all, b.square_sums(k, width)));
}

TEST_CASE("norms: the root is the one that divides by an integer") {
  constexpr double eps = 1e-6;
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 1, 5);
  const Element e =
      SipOracle(testing::decoder_seed).value("constant", std::bit_cast<std::uint64_t>(eps));
  FieldTensor squares(1, 1);  // such that squares / 5 + eps = 128
  squares.values = {gf61::mul(5, gf61::sub(128, e))};
  CHECK(b.rms_normalized(x, squares, 5, eps) == b.divide_by_sqrt(x, 128));
  CHECK(differ_everywhere(b.divide_by_sqrt(x, 64), b.divide_by_sqrt(x, 128)));
}

TEST_CASE("statistics: what does not fit is refused") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 2, 12), s = b.square_sums(x, 12);
  CHECK_THROWS_AS(b.column_sums(x, 5), LayoutError);
  CHECK_THROWS_AS(b.square_sums(x, 0), LayoutError);
  CHECK_THROWS_AS(b.centered(x, s, 0), LayoutError);
  CHECK_THROWS_AS(b.rms_normalized(x, s, -1, 1e-6), LayoutError);
  CHECK_THROWS_AS(b.rms_normalized(b.slice(x, 0, 0, 1), s, 12, 1e-6), LayoutError);
  CHECK_THROWS_AS(b.mul_columns(x, b.empty("weight", Shape(5))), LayoutError);
  CHECK_THROWS_AS(b.mul_columns(x, b.empty("weight", Shape(3, 4))), LayoutError);
}

TEST_CASE("field: a weight of one head multiplies every head's columns") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 2, 6);
  const FieldTensor y = b.mul_columns(x, b.stored(Shape(3), {2, 3, 5}));
  for (Index t = 0; t < 2; ++t)
    for (Index c = 0; c < 6; ++c)
      CHECK(y.at(t, c) == gf61::mul(x.at(t, c), std::vector<Element>{2, 3, 5}[c % 3]));
}

TEST_CASE("field: nothing is rounded") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 2, 3), y = b.input("y", 2, 3);
  CHECK(b.add_unrounded(x, y) == b.add(x, y));
  CHECK(b.rounded(x) == x);
}

// --- activations ---

TEST_CASE("gelu: keeps 0 and is no other activation") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 5);
  for (const Activation f : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    CHECK(activate(b, f, FieldTensor(2, 3)) == FieldTensor(2, 3));
    for (const Activation g : {Activation::silu, Activation::gelu, Activation::gelu_tanh})
      if (f != g) CHECK(differ_everywhere(activate(b, f, x), activate(b, g, x)));
  }
}

TEST_CASE("gelu: the tanh form follows its definition by the sigmoid of silu") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 2, 3), y = b.gelu_tanh(x);
  CHECK(b.counters().oracle_calls == 7U);
  const SipOracle oracle(testing::decoder_seed);
  const double root = std::sqrt(8 / std::numbers::pi);
  const Element factor = oracle.value("constant", std::bit_cast<std::uint64_t>(root));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const Element v = x.values[i], cube = gf61::mul(v, gf61::mul(v, v));
    const Element argument =
        gf61::mul(factor, gf61::add(v, gf61::mul(cube, gf61::mul(44715, gf61::inverse(1000000)))));
    CHECK(gf61::mul(y.values[i], gf61::add(1, oracle.nonzero("exp", gf61::neg(argument)))) == v);
  }
}

TEST_CASE("oracle: calls of norms and activations are counted") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 8);
  (void)b.gelu(x);
  CHECK(b.counters().oracle_calls == 24U);
  (void)b.rms_normalized(x, b.square_sums(x, 4), 4, 1e-6);  // six roots, and eps
  CHECK(b.counters().oracle_calls == 31U);
  (void)b.rope(x, positions(3), 4, {.rotary_dim = 4});
  (void)b.centered(x, b.column_sums(x, 8), 8);
  CHECK(b.counters().oracle_calls == 31U);
}

// --- rotary positions ---

TEST_CASE("rope: heads are turned one by one, and tokens by their position") {
  REQUIRE(rc::check([] {
    const Index pairs = *rc::gen::inRange<Index>(1, 5), rest = *rc::gen::inRange<Index>(0, 4);
    const Index heads = *rc::gen::inRange<Index>(1, 5), tokens = *rc::gen::inRange<Index>(1, 6);
    const Index head_dim = 2 * pairs + rest, first = *rc::gen::inRange<Index>(0, 1000);
    RopeSpec spec{.rotary_dim = 2 * pairs};
    if (*rc::gen::arbitrary<bool>()) spec.style = RopeStyle::interleaved;
    FieldBackend b = field_backend(), other_rank = field_backend(Weakening::none, 3);
    const FieldTensor x = b.input("x", tokens, heads * head_dim);
    const FieldTensor whole = b.rope(x, positions(tokens, first), head_dim, spec);
    RC_ASSERT(other_rank.rope(x, positions(tokens, first), head_dim, spec) == whole);
    for (Index h = 0; h < heads; ++h)
      RC_ASSERT(b.rope(b.slice(x, 1, h * head_dim, head_dim), positions(tokens, first), head_dim,
                       spec) == b.slice(whole, 1, h * head_dim, head_dim));
    for (Index t = 0; t < tokens; ++t) {
      const FieldTensor alone = b.slice(x, 0, t, 1), expected = b.slice(whole, 0, t, 1);
      RC_ASSERT(b.rope(alone, {first + t}, head_dim, spec) == expected);
      RC_ASSERT(b.rope(alone, {first + t + 1}, head_dim, spec) != expected);
    }
    for (Index h = 0; h < heads && rest > 0; ++h)  // columns past the rotary part stay
      RC_ASSERT(b.slice(whole, 1, h * head_dim + 2 * pairs, rest) ==
                b.slice(x, 1, h * head_dim + 2 * pairs, rest));
  }));
}

TEST_CASE("rope: a pair turns by the same cos and sin, the second one's sin negated") {
  FieldBackend b = field_backend();
  for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    const RopeSpec spec{.rotary_dim = 6, .style = style};
    for (Index j = 0; j < 3; ++j) {
      const Index first = style == RopeStyle::half_split ? j : 2 * j;
      const Index second = style == RopeStyle::half_split ? j + 3 : 2 * j + 1;
      FieldTensor unit(2, 8);
      unit.row(0)[first] = unit.row(1)[second] = 1;
      const FieldTensor y = b.rope(unit, {17, 17}, 8, spec);
      CHECK(y.at(0, first) == y.at(1, second));             // cos
      CHECK(y.at(0, second) == gf61::neg(y.at(1, first)));  // sin
      CHECK(y.at(0, first) != y.at(0, second));
      for (Index c = 0; c < 8; ++c)
        if (c != first && c != second) CHECK(y.at(0, c) + y.at(1, c) == 0);
    }
  }
}

TEST_CASE("rope: everything that the angles depend on gives other values") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 16);
  const auto turned = [&](const RopeSpec& spec) { return b.rope(x, positions(3), 8, spec); };
  const RopeSpec plain{.rotary_dim = 8};
  const auto with = [](RopeSpec spec, auto change) {
    change(spec);
    return spec;
  };
  const auto scaled = [&](RopeScaling scaling) {
    return with(plain, [&](RopeSpec& s) {
      s.scaling = scaling, s.factor = 8, s.original_positions = 4096;
    });
  };
  const RopeSpec llama3 = scaled(RopeScaling::llama3), yarn = scaled(RopeScaling::yarn);
  const std::vector<RopeSpec> all{
      plain,
      with(plain, [](RopeSpec& s) { s.theta = 500000; }),
      with(plain, [](RopeSpec& s) { s.style = RopeStyle::interleaved; }),
      scaled(RopeScaling::linear),
      with(scaled(RopeScaling::linear), [](RopeSpec& s) { s.factor = 4; }),
      llama3,
      with(llama3, [](RopeSpec& s) { s.factor = 4; }),
      with(llama3, [](RopeSpec& s) { s.low_freq_factor = 2; }),
      with(llama3, [](RopeSpec& s) { s.high_freq_factor = 8; }),
      with(llama3, [](RopeSpec& s) { s.original_positions = 8192; }),
      yarn,
      with(yarn, [](RopeSpec& s) { s.beta_fast = 16; }),
      with(yarn, [](RopeSpec& s) { s.beta_slow = 2; }),
      with(yarn, [](RopeSpec& s) { s.attention_factor = 1; }),
      with(yarn, [](RopeSpec& s) { s.original_positions = 8192; })};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      CAPTURE(i, j);
      CHECK(differ_everywhere(turned(all[i]), turned(all[j])));
    }
  CHECK(differ_everywhere(turned({.rotary_dim = 4}), turned(plain)));
  // what a scaling does not read changes nothing
  CHECK(turned(with(plain, [](RopeSpec& s) { s.factor = 3, s.beta_fast = 1; })) == turned(plain));
  CHECK(turned(with(yarn, [](RopeSpec& s) { s.attention_factor = 0.1 * std::log(8.0) + 1; })) ==
        turned(yarn));
}

TEST_CASE("rope: the other style on columns in the other order is the same turn") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 16);
  const std::vector<Index> split{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  const RopeSpec halves{.rotary_dim = 8};
  const RopeSpec neighbours{.rotary_dim = 8, .style = RopeStyle::interleaved};
  CHECK(permuted(b.rope(x, positions(3), 8, neighbours), split) ==
        b.rope(permuted(x, split), positions(3), 8, halves));
}

TEST_CASE("rope: heads that are cut, or positions that are missing, are refused") {
  FieldBackend b = field_backend();
  const FieldTensor x = b.input("x", 3, 12);
  CHECK_THROWS_AS(b.rope(x, positions(3), 8, {.rotary_dim = 8}), LayoutError);
  CHECK_THROWS_AS(b.rope(x, positions(2), 4, {.rotary_dim = 4}), LayoutError);
  CHECK_THROWS_AS(b.rope(x, positions(3), 4, {.rotary_dim = 6}), LayoutError);
}

// --- what weaker functions miss ---

TEST_CASE("weakening: activations become the identity or commute with means") {
  FieldBackend same = field_backend(Weakening::identity_oracle);
  FieldBackend affine = field_backend(Weakening::affine_oracle), real = field_backend();
  const FieldTensor x = real.input("x", 2, 3), y = real.input("y", 2, 3);
  for (const Activation f : {Activation::gelu, Activation::gelu_tanh}) {
    const auto commutes = [&](FieldBackend& b) {
      return activate(b, f, mean(b, x, y)) == mean(b, activate(b, f, x), activate(b, f, y));
    };
    CHECK(activate(same, f, x) == x);
    CHECK(activate(real, f, x) != x);
    CHECK(commutes(affine));
    CHECK_FALSE(commutes(real));
  }
}

TEST_CASE("weakening: an affine root lets a norm average the norms by its parts") {
  const auto commutes = [](Weakening weakening) {
    FieldBackend b = field_backend(weakening);
    const FieldTensor x = b.input("x", 2, 8);
    const FieldTensor left = b.square_sums(b.slice(x, 1, 0, 4), 4);
    const FieldTensor right = b.square_sums(b.slice(x, 1, 4, 4), 4);
    return b.rms_normalized(x, b.square_sums(x, 8), 8, 1e-6) ==
           mean(b, b.rms_normalized(x, left, 4, 1e-6), b.rms_normalized(x, right, 4, 1e-6));
  };
  CHECK(commutes(Weakening::affine_oracle));
  CHECK_FALSE(commutes(Weakening::none));
}

TEST_CASE("weakening: functions keyed by rank differ between replicas") {
  for (const Weakening weakening : {Weakening::none, Weakening::rank_keyed_oracle}) {
    FieldBackend first = field_backend(weakening, 0), second = field_backend(weakening, 1);
    const FieldTensor x = first.input("x", 2, 4);
    const bool keyed = weakening == Weakening::rank_keyed_oracle;
    CHECK((first.gelu(x) != second.gelu(x)) == keyed);
    CHECK((first.gelu_tanh(x) != second.gelu_tanh(x)) == keyed);
    const FieldTensor squares = first.square_sums(x, 4);
    CHECK((first.rms_normalized(x, squares, 4, 1e-6) !=
           second.rms_normalized(x, squares, 4, 1e-6)) == keyed);
  }
}

}  // namespace
}  // namespace tpsim::decoder_ops_field_tests
