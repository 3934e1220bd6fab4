// SPDX-License-Identifier: MIT
// TF32, which is used when it is asked for: factors of 11 bits, and a bound that allows them.
#include <cmath>

#include <tests/support/cuda_fixture.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using test_eigen::full;
using test_eigen::load;

EigenOptions with_tf32(bool tf32) {
  EigenOptions o = tracked();
  o.tf32 = tf32;
  return o;
}

/// Elements of `y` that are further from `exact` than `bound`, and exact's own, allows.
Index outside(const BoundedCudaTensor& y, const eigen::Matrix<double>& bound,
              const eigen::Tensor<double>& exact) {
  Index n = 0;
  for (Index i = 0; i < y.value.size(); ++i) {
    const double own = exact.has_bound() ? exact.bound.data()[i] : 0;
    const double off = std::abs(static_cast<double>(y.value.data()[i]) - exact.value.data()[i]);
    if (off > bound.data()[i] + own) ++n;
  }
  return n;
}

TEST_CASE("cuda tf32: products are off by more than f32 allows, and within TF32's bound") {
  const EigenBackend<double> exact(0, DType::f32, tracked());
  BoundedCudaBackend plain(0, DType::f32, with_tf32(false), cuda::Device()),
      cut(0, DType::f32, with_tf32(true), cuda::Device());
  for (const Index inner : {1, 7, 64, 600}) {
    INFO("inner " << inner);
    const FullTensor w = full("w", Shape(9, inner));
    const auto of = [&](BoundedCudaBackend& b) {
      return b.linear(b.activation("x", {5, inner}), loaded(b, w));
    };
    const auto y = of(plain), z = of(cut);
    const auto e = exact.linear(exact.activation("x", {5, inner}), load(exact, w));
    close(y, e);
    close(z, e);
    CHECK_FALSE(same_numbers(y.value, z.value));
    // Without its own term the bound would fail: this one is that of products of f32. That of a
    // long sum has room for it.
    if (inner < 600) CHECK(outside(z, y.bound, e) > 0);
    CHECK((z.bound.array() > y.bound.array()).all());
  }
}

TEST_CASE("cuda tf32: attention's products use it too, and stay within their bound") {
  const EigenBackend<double> exact(0, DType::f32, tracked());
  AttentionSpec s;
  s.heads = 4, s.kv_heads = 2, s.head_dim = s.v_head_dim = s.scale_dim = 32, s.first_position = 3;
  const auto of = [&](auto& b) {
    return b.attention(b.activation("q", {7, 128}), b.activation("k", {10, 64}),
                       b.activation("v", {10, 64}), s, nullptr);
  };
  BoundedCudaBackend plain(0, DType::f32, with_tf32(false), cuda::Device()),
      cut(0, DType::f32, with_tf32(true), cuda::Device());
  const auto y = of(plain), z = of(cut);
  const auto e = of(exact);
  close(y, e);
  close(z, e);
  CHECK_FALSE(same_numbers(y.value, z.value));
  CHECK(outside(z, y.bound, e) > 0);
}

TEST_CASE("cuda tf32: small integers pass as they are, and 2-byte types do not know it") {
  EigenOptions integers = with_tf32(true);
  integers.track_bounds = false;
  integers.values = {eigen::ValueKind::integer, 3, eigen::integer_range(DType::f32, 500)};
  const FullTensor w = full("w", Shape(21, 500));
  const auto compared = [&](DType rule, const EigenOptions& one, const EigenOptions& other) {
    const auto product = [&](const EigenOptions& o) {
      BoundedCudaBackend b(0, rule, o, cuda::Device());
      auto y = b.linear(b.activation("x", {19, 500}), loaded(b, w));
      b.fetch(y);
      return y;
    };
    const auto a = product(one), b = product(other);
    CHECK(same_numbers(a.value, b.value));
    CHECK((a.bound.array() == b.bound.array()).all());
  };
  EigenOptions plain = integers;
  plain.tf32 = false;
  compared(DType::f32, integers, plain);
  for (const DType rule : {DType::bf16, DType::f16})
    compared(rule, with_tf32(true), with_tf32(false));
}

}  // namespace
