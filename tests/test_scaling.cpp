// SPDX-License-Identifier: MIT
// add and scale: the same in every backend, and within their bounds in floats.
#include <cmath>
#include <memory>

#include <tests/support/catch.hpp>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/backend/field/field_backend.hpp>

namespace scaling_tests {

using namespace tpsim;

TEST_CASE("scaling: the field divides exactly, and -1 takes away what was added") {
  const auto context = std::make_shared<FieldContext>(FieldContext{3});
  FieldBackend b(context, 0);
  const FieldTensor x = b.input("x", 3, 5), y = b.input("y", 3, 5);
  CHECK(b.scale(b.scale(x, Rational(3)), Rational(1, 3)) == x);
  CHECK(b.scale(x, Rational(3)) == b.add(b.add(x, x), x));
  CHECK(b.add(b.add(x, y), b.scale(y, Rational(-1))) == x);
  CHECK(b.scale(x, Rational(-2, 7)) != b.scale(x, Rational(2, 7)));
  CHECK_THROWS_AS(b.add(x, b.input("x", 3, 4)), LayoutError);
}

TEST_CASE("scaling: floats stay within their bounds for any rule") {
  for (const DType rule : {DType::f32, DType::bf16, DType::f16}) {
    EigenOptions options;
    options.track_bounds = true;
    const EigenBackend<float> b(0, rule, options);
    const EigenBackend<double> reference(0, rule, options);
    const auto x = b.activation("x", Shape(7, 33)), y = b.activation("y", Shape(7, 33));
    const auto exact_x = reference.activation("x", Shape(7, 33)),
               exact_y = reference.activation("y", Shape(7, 33));
    const auto sum = b.add(b.scale(x, Rational(5, 3)), b.scale(y, Rational(-1, 7)));
    double worst = 0;
    for (Index t = 0; t < 7; ++t)
      for (Index c = 0; c < 33; ++c) {
        const double exact = exact_x.value(t, c) * 5 / 3 - exact_y.value(t, c) / 7;
        const double off = std::abs(static_cast<double>(sum.value(t, c)) - exact);
        worst = std::max(worst, off / sum.bound(t, c));
      }
    INFO(name(rule));
    CHECK(worst <= 1);
    CHECK(worst > 0.2);
    CHECK_THROWS_AS(b.add(x, b.activation("x", Shape(7, 32))), LayoutError);
  }
}

TEST_CASE("scaling: without bounds the values are the same") {
  EigenOptions options;
  options.track_bounds = true;
  const EigenBackend<float> with(0, DType::bf16, options), without(0, DType::bf16);
  const auto x = with.activation("x", Shape(4, 9));
  CHECK(with.scale(x, Rational(1, 3)).value == without.scale(x, Rational(1, 3)).value);
  CHECK(with.add(x, x).value == without.add(x, x).value);
  CHECK(!without.add(x, x).has_bound());
}

}  // namespace scaling_tests
