// SPDX-License-Identifier: MIT
// The numeric backend: conversions, poison, loading, fixed order, integer data.
#include <random>
#include <set>

#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/eigen_fixture.hpp>

namespace eigen_backend_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_eigen;

TEST_CASE("eigen backend: 2-byte conversions agree with those of Eigen on every pattern") {
  for (std::uint32_t w = 0; w < 65536; ++w) {
    const auto word = static_cast<std::uint16_t>(w);
    const auto b = Eigen::numext::bit_cast<Eigen::bfloat16>(word);
    const auto h = Eigen::numext::bit_cast<Eigen::half>(word);
    for (const auto& [mine, theirs, back] :
         {std::tuple(eigen::from_bf16(word), static_cast<float>(b),
                     eigen::to_bf16(eigen::from_bf16(word))),
          {eigen::from_f16(word), static_cast<float>(h), eigen::to_f16(eigen::from_f16(word))}}) {
      if (std::isnan(theirs)) {
        if (!std::isnan(mine)) FAIL("pattern " << w << " is a NaN");
      } else if (std::bit_cast<std::uint32_t>(mine) != std::bit_cast<std::uint32_t>(theirs) ||
                 back != word) {
        FAIL("pattern " << w << ": " << mine << " is " << theirs << ", back " << back);
      }
    }
  }
}

TEST_CASE("eigen backend: rounding to 2 bytes agrees with that of Eigen on floats of all sizes") {
  std::mt19937 random(1);
  const auto check = [](std::uint32_t bits) {
    const auto f = std::bit_cast<float>(bits);
    const auto b = Eigen::numext::bit_cast<std::uint16_t>(Eigen::bfloat16(f));
    const auto h = Eigen::numext::bit_cast<std::uint16_t>(Eigen::half(f));
    const bool right = std::isnan(f) ? std::isnan(eigen::from_bf16(eigen::to_bf16(f))) &&
                                           std::isnan(eigen::from_f16(eigen::to_f16(f)))
                                     : eigen::to_bf16(f) == b && eigen::to_f16(f) == h;
    if (!right) FAIL("bits " << bits << " value " << f);
  };
  for (int i = 0; i < 2000000; ++i) check(static_cast<std::uint32_t>(random()));
  for (std::uint32_t w = 0; w < 65536; ++w)  // each bf16 and f16, the ties above it, neighbours
    for (const std::uint32_t d : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xfffU, 0x1000U, 0x1001U}) {
      check((w << 16U) + d);
      check(std::bit_cast<std::uint32_t>(eigen::from_f16(static_cast<std::uint16_t>(w))) + d);
    }
  CHECK(eigen::to_f16(65519.996F) == 0x7bffU);
  CHECK(eigen::to_f16(65520.0F) == 0x7c00U);
  CHECK(eigen::to_bf16(std::numeric_limits<float>::max()) == 0x7f80U);
}

TEST_CASE("eigen backend: poison is a NaN that tells the rank") {
  for (const DType rule : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    std::set<std::uint64_t> seen{0, 0x7fc0U, 0x7e00U, 0x7fc00000U, 0x7ff8000000000000U};
    for (int rank = 0; rank < 126; ++rank) {
      const eigen::Param p = EigenBackend<double>(rank, rule).empty("w", {2, 3});
      CHECK(seen.insert(p.bits(1, 2)).second);
      CHECK(std::isnan(p.at(1, 2)));
      CHECK(p.count_poison() == 6);
    }
  }
}

TEST_CASE("eigen backend: copy follows a view in any order") {
  const Shape shape(9, 5);
  for (const bool packed : {false, true}) {
    const FullTensor all = full("w", shape, std::make_shared<Numbered>(shape, packed));
    Runs order;
    for (const Run& run : {Run{7, 2, 1}, Run{0, 3, 2}, Run{5, 1, 1}, Run{3, 1, 1}})
      order.append(run);
    const FullTensor view = all.rows(order);
    const std::vector<Index> rows{7, 8, 0, 2, 4, 5, 3};
    for (const DType rule : {DType::f32, DType::f16, DType::f64}) {
      const EigenBackend<double> b(0, rule);
      eigen::Param p = b.empty("w", {4, 5});
      b.copy(p, 0, 1, view, 3, 3);
      for (Index i = 0; i < 3; ++i)
        for (Index c = 0; c < 5; ++c)
          CHECK(p.at(1 + i, c) ==
                static_cast<double>(100 * rows[3 + static_cast<std::size_t>(i)] + c));
      CHECK(p.count_poison() == 5);
      eigen::Param q = b.empty("w", {7, 4});
      b.copy(q, 1, 2, view, 3, 2);
      for (Index i = 0; i < 7; ++i)
        CHECK(q.at(i, 3) == static_cast<double>(100 * rows[static_cast<std::size_t>(i)] + 4));
      CHECK(q.count_poison() == 14);
      CHECK_THROWS_AS(b.copy(q, 1, 2, view, 3, 3), LayoutError);
    }
  }
}

TEST_CASE("eigen backend: generated values depend on the meaning and not on the place") {
  const auto meaning = std::make_shared<const LogicalTensor>("q", Shape(6, 40));
  // On disk the rows lie as 3 4 5 0 1 2.
  const auto turned = std::make_shared<StoredTensor>(
      StoredTensor{"fused", {6, 40}, {{0, 3, meaning, 3, 1}, {3, 3, meaning, 0, 1}}, nullptr});
  for (const auto kind : {eigen::ValueKind::normalish, eigen::ValueKind::integer}) {
    const EigenOptions options{.values = {.kind = kind, .seed = 7}};
    const EigenBackend<float> b(0, DType::f32, options);
    const EigenBackend<double> d(1, DType::f64, options);
    const eigen::Param whole = load(b, full("q", {6, 40})), moved = load(b, FullTensor(turned)),
                       wide = load(d, full("q", {6, 40})),
                       right = load(b, full("q", {6, 40}), 1, 10, 30);
    for (Index r = 0; r < 6; ++r)
      for (Index c = 0; c < 40; ++c) {
        CHECK(moved.at((r + 3) % 6, c) == whole.at(r, c));
        CHECK(wide.at(r, c) == whole.at(r, c));
        if (c >= 10) CHECK(right.at(r, c - 10) == whole.at(r, c));
        const double v = whole.at(r, c);
        if (kind == eigen::ValueKind::integer)
          CHECK((v != 0 && std::abs(v) <= 3 && v == std::round(v)));
        else
          CHECK(std::abs(v) <= 1 / std::sqrt(40.0));
      }
    CHECK(b.activation("x", {2, 9}).value.cast<double>() == d.activation("x", {2, 9}).value);
    CHECK(b.activation("x", {2, 9}).value != b.activation("y", {2, 9}).value);
  }
}

TEST_CASE("eigen backend: the bits of an element depend on its token and its row alone") {
  CHECK(rc::check("fixed order", [] {
    const Index in = *rc::gen::element<Index>(1, 3, 255, 256, 257, 1025, 2100);
    const Index out = *rc::gen::inRange<Index>(1, 140), tokens = *rc::gen::inRange<Index>(1, 70);
    const DType rule = *rc::gen::element(DType::f32, DType::bf16);
    EigenBackend<float> b(0, rule);
    const FullTensor w = full("w", {out, in});
    const auto x = b.activation("x", {tokens, in});
    const auto y = b.linear(x, load(b, w));
    const Index at = *rc::gen::inRange<Index>(0, out),
                count = *rc::gen::inRange<Index>(1, out - at + 1);
    const auto shard = b.linear(x, load(b, w, 0, at, count));
    RC_ASSERT(same_bits(shard.value, b.slice(y, 1, at, count).value));
    const Index t = *rc::gen::inRange<Index>(0, tokens);
    RC_ASSERT(
        same_bits(b.linear(b.slice(x, 0, t, 1), load(b, w)).value, b.slice(y, 0, t, 1).value));
    const EigenBackend<float> bounded(0, rule, {.track_bounds = true});
    RC_ASSERT(same_bits(bounded.linear(x, load(b, w)).value, y.value));
    for (const int threads : {1, 2, 3}) {
      const Threads set(threads);
      RC_ASSERT(same_bits(b.linear(x, load(b, w)).value, y.value));
    }
  }));
}

TEST_CASE("eigen backend: integer data has the same bits for every split and order") {
  CHECK(rc::check("integer", [] {
    const Index in = *rc::gen::inRange<Index>(2, 3000), out = *rc::gen::inRange<Index>(1, 6);
    const DType rule = *rc::gen::element(DType::f32, DType::bf16, DType::f16);
    const auto range = eigen::integer_range(rule, in);
    const EigenBackend<float> b(
        0, rule, {.values = {.kind = eigen::ValueKind::integer, .seed = 3, .range = range}});
    const FullTensor w = full("w", {out, in});
    const auto bias = load(b, full("b", Shape(out)));
    const auto x = b.activation("x", {70, in});
    RC_ASSERT(b.sums_are_exact(x, load(b, w)));
    RC_ASSERT(range.largest_sum(in) <= eigen::exact_integers(rule));
    const auto whole = b.add_bias(b.linear(x, load(b, w)), bias);
    RC_ASSERT(exact(b.linear(x, load(b, w))) == exact_linear(exact(x), load(b, w), b));
    std::set<Index> cuts{0, in};
    for (int i = 0; i < 4; ++i) cuts.insert(*rc::gen::inRange<Index>(0, in));
    Tensors<float> parts;
    for (auto it = cuts.begin(); std::next(it) != cuts.end(); ++it) {
      const Index n = *std::next(it) - *it;
      parts.push_back(b.linear(b.slice(x, 1, *it, n), load(b, w, 1, *it, n)));
    }
    parts[0] = b.add_bias(parts[0], bias);
    std::shuffle(parts.begin(), parts.end(), std::mt19937(static_cast<unsigned>(in)));
    RC_ASSERT(same_bits(reduce<float>(b, parts).value, whole.value));
  }));
  CHECK(eigen::integer_range(DType::f32, 53248).x == 3);
  CHECK(eigen::integer_range(DType::bf16, 14336).x_stride == 57);
  // 70 tokens at stride 57 touch every column; a wider range would not be exact.
  CHECK(eigen::IntegerRange{3, 3, 1}.largest_sum(14336) > eigen::exact_integers(DType::f16));
}

TEST_CASE("eigen backend: wrong requests are refused") {
  CHECK_THROWS_AS(EigenBackend<float>(0, DType::f64), LayoutError);
  CHECK_THROWS_AS(EigenBackend<float>(0, DType::field), LayoutError);
  CHECK_THROWS_AS(EigenBackend<float>(-1), LayoutError);
  const EigenBackend<float> b;
  const auto x = b.activation("x", {2, 3});
  CHECK_THROWS_AS(b.linear(x, b.empty("w", {4, 2})), LayoutError);
  CHECK_THROWS_AS(b.add_bias(x, b.empty("b", Shape(2))), LayoutError);
  CHECK_THROWS_AS(b.mul(x, b.slice(x, 1, 0, 2)), LayoutError);
  CHECK_THROWS_AS(b.slice(x, 1, 2, 2), LayoutError);
  CHECK_THROWS_AS(reduce<float>(b, {x, b.slice(x, 0, 0, 1)}), LayoutError);
  CHECK(b.linear(b.slice(x, 0, 0, 0), load(b, full("w", {4, 3}))).value.size() == 0);
}

}  // namespace

}  // namespace eigen_backend_tests
