// SPDX-License-Identifier: MIT
// Orders and roundings of a reduction: against a plain simulation of the ranks, bit for bit, and
// within their bounds.
#include <bit>
#include <cmath>
#include <map>

#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/eigen_fixture.hpp>
#include <tests/support/verify_fixture.hpp>

namespace numeric_modes_tests {
namespace {

using namespace tpsim;
using test_eigen::Matrix;
using Part = eigen::Tensor<float>;

constexpr std::array<ReduceOrder, 3> orders{ReduceOrder::rank, ReduceOrder::ring, ReduceOrder::f32};
constexpr std::array<DType, 3> dtypes{DType::f32, DType::bf16, DType::f16};

/// `v` to nearest even in a type with that many significant bits and that smallest subnormal.
double rounded(double v, DType t) {
  if (v == 0 || !std::isfinite(v)) return v;
  const int bits = t == DType::f32 ? 24 : t == DType::bf16 ? 8 : 11;
  const int least = t == DType::f32 ? -149 : t == DType::bf16 ? -133 : -24;
  int exponent = 0;
  std::frexp(v, &exponent);
  const int unit = std::max(exponent - bits, least);
  return std::ldexp(std::nearbyint(std::ldexp(v, -unit)), unit);
}

using Numbers = std::vector<double>;  // of one rank, row by row

/// In rank order, rounded at each hop.
Numbers sum_in_rank_order(const std::vector<Numbers>& ranks, DType t) {
  Numbers a = ranks[0];
  for (std::size_t r = 1; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = rounded(a[i] + ranks[r][i], t);
  return a;
}
Numbers sum_in_f32(const std::vector<Numbers>& ranks, DType t) {
  Numbers a = sum_in_rank_order(ranks, DType::f32);
  for (double& v : a) v = rounded(v, t);
  return a;
}
/// Messages round a ring: at each step every rank sends one chunk to its right-hand neighbour,
/// which adds its own; it starts with the chunk of the rank to its left. What a rank has summed
/// last is what all of them gather.
Numbers sum_round_the_ring(const std::vector<Numbers>& ranks, DType t) {
  const std::size_t n = ranks.size(), size = ranks[0].size(), chunk = (size + n - 1) / n;
  std::vector<Numbers> held = ranks;
  for (std::size_t step = 0; step + 1 < n; ++step) {
    const std::vector<Numbers> sent = held;
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t which = (r + n - 1 + n - step) % n, to = (r + 1) % n;
      for (std::size_t i = which * chunk; i < std::min(size, (which + 1) * chunk); ++i)
        held[to][i] = rounded(sent[r][i] + ranks[to][i], t);
    }
  }
  Numbers gathered(size);
  for (std::size_t i = 0; i < size; ++i) gathered[i] = held[i / chunk][i];
  return gathered;
}
Numbers plain_sum(const std::vector<Numbers>& ranks, DType t, ReduceOrder order) {
  return order == ReduceOrder::rank   ? sum_in_rank_order(ranks, t)
         : order == ReduceOrder::ring ? sum_round_the_ring(ranks, t)
                                      : sum_in_f32(ranks, t);
}

/// Numbers of type `t` of sizes around 1, or of sizes that differ much, or subnormal.
std::vector<Numbers> random_ranks(std::size_t ranks, Index size, DType t, std::uint64_t seed) {
  const int spread = static_cast<int>(seed % 3);
  std::vector<Numbers> out;
  for (std::size_t r = 0; r < ranks; ++r) {
    Numbers& numbers = out.emplace_back();
    for (Index i = 0; i < size; ++i) {
      const std::uint64_t bits = random_bits(row_key(seed, static_cast<Index>(r)), i);
      const int exponent = spread == 0   ? 0
                           : spread == 1 ? static_cast<int>(bits % 9) - 4
                                         : (t == DType::f16 ? -22 : -131);
      numbers.push_back(
          rounded(std::ldexp(static_cast<double>(bits >> 11U) * 0x1p-52 - 1, exponent), t));
    }
  }
  return out;
}
Part reduced(const std::vector<Numbers>& ranks, Shape shape, DType t, EigenOptions o) {
  test_eigen::Tensors<float> parts;
  for (const Numbers& numbers : ranks) {
    Part& p = parts.emplace_back();
    p.value.resize(shape.rows(), shape.cols());
    for (Index i = 0; i < shape.size(); ++i)
      p.value.data()[i] = static_cast<float>(numbers[static_cast<std::size_t>(i)]);
  }
  return test_eigen::reduce<float>(EigenBackend<float>(0, t, o), parts);
}

TEST_CASE("reductions: every order and type has the bits of ranks that pass messages") {
  int cases = 0, ring_differs = 0, f32_differs = 0;
  CHECK(rc::check("bit for bit", [&] {
    const Shape shape(*rc::gen::inRange<Index>(1, 4), *rc::gen::inRange<Index>(1, 14));
    const auto ranks = *rc::gen::inRange<std::size_t>(1, 10);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    for (const DType t : dtypes) {
      const std::vector<Numbers> numbers = random_ranks(ranks, shape.size(), t, seed);
      std::vector<Numbers> results;
      for (const ReduceOrder order : orders) {
        const Numbers& want = results.emplace_back(plain_sum(numbers, t, order));
        const Part have = reduced(numbers, shape, t, {.track_bounds = true, .order = order});
        for (Index i = 0; i < shape.size(); ++i)
          RC_ASSERT(
              std::bit_cast<std::uint32_t>(have.value.data()[i]) ==
              std::bit_cast<std::uint32_t>(static_cast<float>(want[static_cast<std::size_t>(i)])));
        ++cases;
      }
      ring_differs += results[0] != results[1] ? 1 : 0;
      f32_differs += results[0] != results[2] ? 1 : 0;
    }
  }));
  CHECK(cases == 900);
  CHECK(ring_differs > 50);  // the orders are told apart
  CHECK(f32_differs > 30);   // but in f32, where they are the same
}

TEST_CASE("reductions: chunk c of a ring starts at rank c + 1 and ends at rank c") {
  // 256 + 1 stays 256 in bf16, so where the 256 comes in shows the order.
  const std::vector<Numbers> ranks{{256, 256, 256}, {1, 1, 1}, {1, 1, 1}};
  const auto sum = reduced(ranks, {1, 3}, DType::bf16, {.order = ReduceOrder::ring});
  CHECK(sum.value(0, 0) == 258);  // 1 + 1 + 256
  CHECK(sum.value(0, 1) == 256);  // rank 2 first: 1 + 256 + 1
  CHECK(sum.value(0, 2) == 256);  // 256 + 1 + 1
  const auto once = reduced(ranks, {1, 3}, DType::bf16, {.order = ReduceOrder::f32});
  CHECK(once.value(0, 2) == 258);
}

TEST_CASE("reductions: every order and type stays within its bound, which says something") {
  std::map<std::pair<DType, ReduceOrder>, double> largest, without;
  CHECK(rc::check("bounds hold", [&] {
    const Shape shape(*rc::gen::inRange<Index>(1, 4), *rc::gen::inRange<Index>(1, 14));
    const auto ranks = *rc::gen::inRange<std::size_t>(1, 10);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    for (const DType t : dtypes)
      for (const ReduceOrder order : orders) {
        const std::vector<Numbers> numbers = random_ranks(ranks, shape.size(), t, seed);
        const Part sum = reduced(numbers, shape, t, {.track_bounds = true, .order = order});
        const Part bare = reduced(
            numbers, shape, t,
            {.track_bounds = true, .order = order, .weakening = Weakening::bound_without_hops});
        for (Index i = 0; i < shape.size(); ++i) {
          long double exact = 0;
          for (const Numbers& n : numbers) exact += n[static_cast<std::size_t>(i)];
          const auto difference =
              static_cast<double>(std::abs(static_cast<long double>(sum.value.data()[i]) - exact));
          RC_ASSERT(difference <= sum.bound.data()[i]);
          RC_ASSERT(bare.bound.data()[i] == 0);  // the parts are exact
          if (difference > 0) {
            double& ratio = largest[{t, order}];
            ratio = std::max(ratio, difference / sum.bound.data()[i]);
          }
        }
      }
  }));
  for (const auto& [mode, ratio] : largest) {
    UNSCOPED_INFO(name(mode.first) << " " << name(mode.second) << " " << ratio);
    CHECK(ratio > 0.8);
  }
  CHECK(largest.size() == 9);
}

/// The bound of a reduction of numbers with bounds of their own, written out.
TEST_CASE("reductions: the bound is that of the parts and one rounding of each partial sum") {
  test_eigen::Tensors<float> parts;
  for (const float v : {1.F, 256.F, 3.F}) {
    parts.push_back({Matrix<float>::Constant(1, 1, v), Matrix<double>::Constant(1, 1, 0.125)});
  }
  const auto bound = [&](DType t, ReduceOrder order) {
    const EigenBackend<float> b(0, t, {.track_bounds = true, .order = order});
    return test_eigen::reduce<float>(b, parts).bound(0, 0);
  };
  const auto is = [](double have, double want) { return std::abs(have - want) < 1e-9 * want; };
  const double u = 0x1p-8, v = 0x1p-24;
  // 1 + 256 -> 256, + 3 -> 260 (259 lies between 258 and 260)
  CHECK(is(bound(DType::bf16, ReduceOrder::rank), 0.375 + u * (256 + 260)));
  // one chunk of one element: rank 1, 2, 0: 256 + 3 -> 260, + 1 -> 260 (to even)
  CHECK(is(bound(DType::bf16, ReduceOrder::ring), 0.375 + u * (260 + 260)));
  CHECK(is(bound(DType::bf16, ReduceOrder::f32), 0.375 + v * (257 + 260) + u * 260));
  CHECK(is(bound(DType::f32, ReduceOrder::rank), 0.375 + v * (257 + 260)));
  CHECK(is(bound(DType::f32, ReduceOrder::ring), 0.375 + v * (259 + 260)));
}

NumericOptions asking(DType t, ReduceOrder order, std::uint64_t seed) {
  NumericOptions o;
  o.dtype = t, o.all_reduce = order, o.seed = seed;
  return o;
}

TEST_CASE("rounding: correct layers of tiny and odd shapes are within their bound in every mode") {
  int cases = 0;
  std::map<std::pair<DType, ReduceOrder>, double> largest;
  CHECK(rc::check("no violation", [&] {
    LayerSpec s;
    s.layer = *rc::gen::element<std::string>("row", "row", "mlp", "qkv");
    s.tp = *rc::gen::element(1, 2, 3, 5, 8);
    s.tokens = *rc::gen::inRange<Index>(1, 6);
    s.in = s.tp * *rc::gen::element<Index>(1, 2, 7, 33);
    s.intermediate = s.tp * *rc::gen::element<Index>(1, 3, 5);
    s.out = *rc::gen::element<Index>(1, 2, 3, 17, 64);
    s.bias = *rc::gen::arbitrary<bool>();
    s.qkv = {*rc::gen::element<Index>(1, 5, 19), 3, 2 * s.tp, s.tp, 0};
    const auto subject = make_subject(s);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    for (const DType t : dtypes)
      for (const ReduceOrder order : orders)
        for (std::uint64_t i = 0; i < 4; ++i) {
          const auto checks = read_rounding(*subject, asking(t, order, seed + i));
          if (checks[0].result != Outcome::pass) RC_FAIL(checks[0].message);
          RC_ASSERT(checks[1].findings.empty());
          double& ratio = largest[{t, order}];
          ratio = std::max(ratio, *checks[0].largest_ratio);
          ++cases;
        }
  }));
  CHECK(cases == 3600);
  for (const auto& [mode, ratio] : largest) {
    UNSCOPED_INFO(name(mode.first) << " " << name(mode.second) << " " << ratio);
    CHECK(ratio > (mode.first == DType::f32 ? 0.1 : 0.5));
  }
}

/// Seeds out of 32 at which a correct row layer is outside its bound.
int violations(const LayerSpec& s, ReduceOrder order, Weakening weakening) {
  const auto subject = make_subject(s);
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    NumericOptions o = asking(DType::bf16, order, seed);
    o.weakening = weakening;
    count += read_rounding(*subject, o)[0].result == Outcome::fail ? 1 : 0;
  }
  return count;
}

TEST_CASE("rounding: without the collective's term correct code is outside the bound") {
  LayerSpec s;
  s.layer = "row";
  s.tokens = 16, s.in = 64, s.out = 64;
  for (const ReduceOrder order : orders) {
    // One rounding of the sum is less than eight of the parts: with two ranks it shows.
    s.tp = order == ReduceOrder::f32 ? 2 : 8;
    CHECK(violations(s, order, Weakening::bound_without_hops) > 0);
    CHECK(violations(s, order, Weakening::none) == 0);
  }
}

}  // namespace

}  // namespace numeric_modes_tests
