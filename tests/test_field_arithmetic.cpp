// SPDX-License-Identifier: MIT
// Arithmetic and oracles of the exact reading, its soundness bound, and what weaker ones would
// miss.
#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tpsim/backend/field/field_backend.hpp>
#include <tpsim/backend/field/soundness.hpp>
#include <tpsim/layers/mlp.hpp>

namespace tpsim::field_arithmetic_tests {
namespace {

using gf61::Element, gf61::p, gf61::Wide;
using Elements = std::vector<Element>;

std::shared_ptr<const FieldContext> context(Weakening weakening = Weakening::none) {
  return std::make_shared<FieldContext>(FieldContext{11, weakening});
}

/// 1 + E = 0 everywhere.
struct SingularOracle {
  explicit SingularOracle(std::uint64_t) {}
  Element value(std::string_view, Element x) const { return x; }
  Element nonzero(std::string_view, Element) const { return p - 1; }
};

bool sees_exchanged_gate_and_up(Weakening weakening) {
  using B = FieldBackend;
  B b(context(weakening), 0);
  const auto param = [&](const std::string& name, Shape shape) {
    const auto logical = std::make_shared<LogicalTensor>(name, shape);
    const FullTensor full(std::make_shared<StoredTensor>(
        StoredTensor{name, shape, {{0, shape.rows(), logical, 0, 1}}, nullptr}));
    FieldParam w = b.empty("weight", shape);
    b.copy(w, 0, 0, full, 0, shape.rows());
    return w;
  };
  FullParams<B> right{{"gate_proj.weight", param("gate", Shape(12, 8))},
                      {"up_proj.weight", param("up", Shape(12, 8))},
                      {"down_proj.weight", param("down", Shape(8, 12))}};
  FullParams<B> wrong = right;
  std::swap(wrong.at("gate_proj.weight"), wrong.at("up_proj.weight"));
  const FieldTensor x = b.input("x", 3, 8);
  return GatedMLP<B>::full(b, x, right) != GatedMLP<B>::full(b, x, wrong);
}

/// Does silu(mean of partial values) = mean of silu(partial values)? Then a nonlinearity on the
/// wrong side of an averaging reduction is not seen.
bool commutes_with_means_of_partials(Weakening weakening) {
  FieldBackend b(context(weakening), 0);
  const FieldTensor u = b.input("u", 2, 5), v = b.input("v", 2, 5);
  const auto mean = [&](const FieldTensor& a, const FieldTensor& c) {
    const std::vector<const FieldTensor*> both{&a, &c};
    FieldTensor m = b.reduce(Reduction::sum, both);
    for (Element& e : m.values) e = gf61::mul(e, gf61::inverse(2));
    return m;
  };
  return b.silu(mean(u, v)) == mean(b.silu(u), b.silu(v));
}

/// Does the fold survive all operands p - 1 (each product is then 1 mod p)?
template <class Fold>
bool survives_worst_case(Fold fold, unsigned most_products) {
  for (unsigned n = 1; n <= most_products; ++n) {
    Wide acc = 0, carried = p - 1;
    for (unsigned i = 0; i < n; ++i) {
      acc += static_cast<Wide>(p - 1) * (p - 1);
      carried += static_cast<Wide>(p - 1) * (p - 1);
    }
    if (fold(acc) != n || fold(carried) != n - 1) return false;
  }
  return true;
}

Element two_limb_fold(Wide x) {
  const Element low = static_cast<Element>(x) & p, high = static_cast<Element>(x >> 61U);
  return static_cast<Element>((static_cast<Wide>(low) + high) % p);
}

TEST_CASE("gf61: operations agree with integer arithmetic mod p") {
  REQUIRE(rc::check([](Element x, Element y) {
    const Element a = gf61::reduce(x), b = gf61::reduce(y);
    RC_ASSERT(a == x % p);
    RC_ASSERT(gf61::add(a, b) == (a + b) % p);
    RC_ASSERT(gf61::sub(a, b) == (a + p - b) % p);
    RC_ASSERT(gf61::add(a, gf61::neg(a)) == 0U);
    RC_ASSERT(gf61::mul(a, b) == static_cast<Element>(static_cast<Wide>(a) * b % p));
    const Wide any = static_cast<Wide>(x) << 64U | y;
    RC_ASSERT(gf61::fold(any) == static_cast<Element>(any % p));
    if (a != 0) RC_ASSERT(gf61::mul(a, gf61::inverse(a)) == 1U);
  }));
  for (const Element edge : {p - 1, p, p + 1, 2 * p, 8 * p + 7}) {
    CHECK(gf61::reduce(edge) == edge % p);
    CHECK(gf61::fold(edge) == edge % p);
  }
  CHECK(gf61::fold(~Wide{0}) == static_cast<Element>(~Wide{0} % p));
  CHECK_THROWS_AS(gf61::inverse(0), Undefined);
}

TEST_CASE("gf61: inverting all at once equals inverting one by one") {
  Elements values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = gf61::reduce(mix(i)) | 1U;
  Elements inverted = values;
  gf61::invert_all(inverted);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(inverted[i] == gf61::inverse(values[i]));
  Elements with_zero = values;
  with_zero[7] = 0;
  const Elements before = with_zero;
  CHECK_THROWS_AS(gf61::invert_all(with_zero), Undefined);
  CHECK(with_zero == before);
}

TEST_CASE("gf61: the fold holds 64 of the largest products and two limbs do not") {
  CHECK(survives_worst_case(gf61::fold, gf61::max_products));
  CHECK(survives_worst_case(two_limb_fold, 8));
  CHECK_FALSE(survives_worst_case(two_limb_fold, 9));
}

TEST_CASE("oracle: siphash gives the reference values") {
  SipHash none(0x0706050403020100U, 0x0f0e0d0c0b0a0908U);
  CHECK(none.finish() == 0x726fdb47dd0e0e31U);
  SipHash fifteen(0x0706050403020100U, 0x0f0e0d0c0b0a0908U);
  for (std::uint8_t i = 0; i < 15; ++i) fifteen.byte(i);
  CHECK(fifteen.finish() == 0xa129ca6149be45e5U);
}

TEST_CASE("oracle: values depend on seed and name and argument alone") {
  const SipOracle a(1), same(1), other(2);
  CHECK(a.value("exp", 5) == same.value("exp", 5));
  CHECK(a.value("exp", 5) != other.value("exp", 5));
  CHECK(a.value("exp", 5) != a.value("gelu", 5));
  CHECK(a.value("exp", 5) != a.value("exp", 6));
  for (Element x = 0; x < 1000; ++x) {
    REQUIRE(a.value("exp", x) < p);
    REQUIRE(a.nonzero("exp", x) < p);
    REQUIRE(a.nonzero("exp", x) != 0U);
  }
}

TEST_CASE("oracle: silu follows its definition and calls are counted") {
  FieldBackend b(context(), 0);
  const FieldTensor x = b.input("x", 3, 7);
  const FieldTensor y = b.silu(x);
  const SipOracle exp(11);
  for (Index t = 0; t < 3; ++t)
    for (Index c = 0; c < 7; ++c) {
      const Element denominator = gf61::add(1, exp.nonzero("exp", gf61::neg(x.at(t, c))));
      CHECK(gf61::mul(y.at(t, c), denominator) == x.at(t, c));
    }
  CHECK(b.mul(x, b.sigmoid(x)) == y);
  CHECK(b.counters().oracle_calls == 42U);
  const std::vector<const FieldTensor*> both{&x, &y};
  const FieldTensor largest = b.reduce(Reduction::max, both);
  CHECK(largest.at(2, 3) == std::max(x.at(2, 3), y.at(2, 3)));
  CHECK(b.counters().comparisons == 21U);
  (void)b.linear(x, b.empty("weight", Shape(5, 7)));
  CHECK(b.counters().macs == 105U);
}

TEST_CASE("oracle: a division by zero asks for another seed") {
  BasicFieldBackend<SingularOracle> b(context(), 0);
  CHECK_THROWS_AS(b.silu(b.input("x", 1, 2)), Undefined);
  CHECK_THROWS_WITH(b.silu(b.input("x", 1, 2)),
                    "division by zero in the field (sigmoid): draw another seed");
}

TEST_CASE("oracle: the identity misses exchanged gate and up and the real one sees them") {
  CHECK_FALSE(sees_exchanged_gate_and_up(Weakening::identity_oracle));
  CHECK(sees_exchanged_gate_and_up(Weakening::none));
}

TEST_CASE("oracle: an affine one commutes with partial values and the real one does not") {
  CHECK(commutes_with_means_of_partials(Weakening::affine_oracle));
  CHECK_FALSE(commutes_with_means_of_partials(Weakening::none));
}

TEST_CASE("oracle: one keyed by rank would raise false alarms on replicas") {
  const auto differ = [](Weakening weakening) {
    const auto shared = context(weakening);
    FieldBackend first(shared, 0), second(shared, 1);
    const FieldTensor x = first.input("x", 2, 3);
    return first.silu(x) != second.silu(x);
  };
  CHECK(differ(Weakening::rank_keyed_oracle));
  CHECK_FALSE(differ(Weakening::none));
}

TEST_CASE("soundness: the bound and the number of seeds match the worked numbers") {
  const StageDegrees reduced{400, 15, 42};
  CHECK(std::abs(log2_miss_per_seed(reduced) + 40.64) < 0.01);
  CHECK(seeds_needed(reduced) == 2);
  const StageDegrees mlp_8b{2.0 * 4 * 14336, 4, 14346};
  CHECK(std::abs(log2_miss_per_seed(mlp_8b) + 26.2) < 0.1);
  CHECK(seeds_needed(mlp_8b, -50) == 2);
  CHECK(seeds_needed(mlp_8b) == 3);
  const StageDegrees mlp_405b{2.0 * 4 * 53248, 4, 53258};
  CHECK(std::abs(3 * log2_miss_per_seed(mlp_405b) + 67.3) < 0.2);
  CHECK(seeds_needed(mlp_405b) == 3);
}

TEST_CASE("soundness: seeds are added until the bound is low enough and never in vain") {
  CHECK(seeds_needed({0, 0, 1}) == 1);  // 9/8 / p = 2^-60.8
  CHECK(seeds_needed({0, 0, 2}) == 2);  // 2^-59.8
  CHECK(seeds_needed({1e10, 4, 10}) == std::nullopt);
}

}  // namespace
}  // namespace tpsim::field_arithmetic_tests
