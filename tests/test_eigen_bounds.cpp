// SPDX-License-Identifier: MIT
// The numeric backend: every error stays within its bound, and the bound says something.
#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/eigen_fixture.hpp>
#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/layers/mlp.hpp>

namespace eigen_bounds_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_eigen;

template <class Real>
double bound_ratio(DType rule, std::uint64_t seed, Index tokens, Index out, Index in) {
  EigenOptions o{.values = {.seed = seed}, .track_bounds = true};
  const EigenBackend<Real> b(0, rule, o);
  const auto w = load(b, full("w", {out, in}));
  const auto bias = load(b, full("b", Shape(out)));
  const auto x = b.activation("x", {tokens, in});
  // silu(linear) * (linear + bias), then a second linear on an inexact input and a reduction of it
  const auto y = b.linear(x, w), z = b.add_bias(y, bias), s = b.silu(y), m = b.mul(s, z);
  const Exact ey = exact_linear(exact(x), w, b);
  Exact ez = ey;
  for (Index n = 0; n < out; ++n) ez.col(n).array() += static_cast<long double>(bias.at(n, 0));
  const Exact es = ey.unaryExpr([](long double v) { return v / (1 + std::exp(-v)); });
  const Exact em = es.cwiseProduct(ez);
  const auto back = load(b, full("back", {3, out}));
  const auto l = b.linear(m, back);
  const Exact el = exact_linear(em, back, b);
  const auto first = b.slice(l, 1, 0, 1), second = b.slice(l, 1, 1, 1), third = b.slice(l, 1, 2, 1);
  const auto sum = reduce<Real>(b, {first, second, third});
  const auto top = reduce<Real>(b, {first, second, third}, Reduction::max);
  const std::vector<double> ratios{ratio(y, ey),
                                   ratio(z, ez),
                                   ratio(s, es),
                                   ratio(m, em),
                                   ratio(l, el),
                                   ratio(sum, Exact(el.rowwise().sum())),
                                   ratio(top, Exact(el.rowwise().maxCoeff()))};
  RC_ASSERT(*std::max_element(ratios.begin(), ratios.end()) <= 1.0);
  RC_ASSERT(y.bound.maxCoeff() < std::numeric_limits<double>::infinity());
  return ratios[0];
}

TEST_CASE("eigen backend: every operation stays within its bound") {
  double f32 = 0, f64 = 0, bf16 = 0, f16 = 0, reference = 0;
  int cases = 0;
  CHECK(rc::check("bounds hold", [&] {
    const Index in = *rc::gen::element<Index>(1, 2, 7, 64, 255, 256, 257, 511, 513, 1030);
    const Index tokens = *rc::gen::inRange<Index>(1, 20), out = *rc::gen::inRange<Index>(1, 12);
    for (int i = 0; i < 2; ++i) {
      const std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>();
      f32 = std::max(f32, bound_ratio<float>(DType::f32, seed, tokens, out, in));
      f64 = std::max(f64, bound_ratio<double>(DType::f64, seed, tokens, out, in));
      bf16 = std::max(bf16, bound_ratio<float>(DType::bf16, seed, tokens, out, in));
      f16 = std::max(f16, bound_ratio<float>(DType::f16, seed, tokens, out, in));
      reference = std::max(reference, bound_ratio<double>(DType::bf16, seed, tokens, out, in));
      cases += 5;
    }
  }));
  UNSCOPED_INFO(cases << " cases; largest error over bound of linear: f32 " << f32 << ", f64 "
                      << f64 << ", bf16 " << bf16 << ", f16 " << f16 << ", f64 on bf16 data "
                      << reference);
  CHECK(bf16 > 0.5);
  CHECK(f16 > 0.5);
  CHECK(f32 > 0.01);
}

TEST_CASE("eigen backend: the bound of a reduction needs its hop terms") {
  const EigenBackend<float> b(0, DType::bf16, {.track_bounds = true});
  const auto constant = [&](float v) {
    return b.input(Matrix<float>(Matrix<float>::Constant(1, 1, v)));
  };
  const auto big = constant(256), one = constant(1);
  const auto sum = reduce<float>(b, {big, one, one, one});
  CHECK(sum.value(0, 0) == 256);  // each hop rounds 257 to even
  const double parts = big.bound_at(0, 0) + 3 * one.bound_at(0, 0);
  CHECK(parts < 3);            // without the hops the bound is broken
  CHECK(sum.bound(0, 0) > 3);  // with them it holds
  CHECK(sum.bound(0, 0) < 3.01);
}

template <class Real>
typename EigenBackend<Real>::Tensor mlp(const EigenBackend<Real>& like, int tp, const MlpShape& s) {
  Tensors<Real> parts;
  for (int rank = 0; rank < tp; ++rank) {
    EigenBackend<Real> b(rank, like.rule(), like.options());
    FixedRank comm(rank, tp);
    GatedMLP<EigenBackend<Real>> layer(b, comm, s);
    layer.gate_up_proj.weight_loader(layer.gate_up_proj.weight,
                                     full("gate_proj.weight", {s.intermediate, s.hidden}), "gate");
    layer.gate_up_proj.weight_loader(layer.gate_up_proj.weight,
                                     full("up_proj.weight", {s.intermediate, s.hidden}), "up");
    layer.down_proj.weight_loader(layer.down_proj.weight,
                                  full("down_proj.weight", {s.hidden, s.intermediate}));
    CHECK(layer.gate_up_proj.weight.count_poison() == 0);
    const auto y = layer.gate_up_proj.forward(b.activation("x", {5, s.hidden}));
    const Index width = s.intermediate / tp;
    const auto h = b.mul(b.silu(b.slice(y, 1, 0, width)), b.slice(y, 1, width, width));
    parts.push_back(b.linear(h, layer.down_proj.weight));
  }
  return reduce<Real>(like, parts);
}

TEST_CASE("eigen backend: the sharded MLP is within both bounds of its reference") {
  const MlpShape s{.hidden = 300, .intermediate = 24};
  for (const DType rule : {DType::f32, DType::bf16, DType::f16}) {
    const EigenOptions o{.values = {}, .track_bounds = true};
    EigenBackend<double> reference(0, rule, o);
    const EigenBackend<float> b(0, rule, o);
    FullParams<EigenBackend<double>> t;
    for (const char* name : {"gate_proj.weight", "up_proj.weight"})
      t.emplace(name, load(reference, full(name, {s.intermediate, s.hidden})));
    t.emplace("down_proj.weight",
              load(reference, full("down_proj.weight", {s.hidden, s.intermediate})));
    const auto x = reference.activation("x", {5, s.hidden});
    const auto want = GatedMLP<EigenBackend<double>>::full(reference, x, t);
    for (const int tp : {1, 2, 3, 8}) {
      const auto got = mlp(b, tp, s);
      const Matrix<double> difference = (got.value.cast<double>() - want.value).cwiseAbs();
      CHECK((difference.array() <= got.bound.array() + want.bound.array()).all());
      CHECK(difference.maxCoeff() > want.bound.maxCoeff());  // the reference's own is far smaller
      CHECK(b.dtype(got) == rule);
    }
  }
}

}  // namespace

}  // namespace eigen_bounds_tests
