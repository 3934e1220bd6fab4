// SPDX-License-Identifier: MIT
// The numeric backend's statistics and norms, and what stays wide in a narrow type.
#include <tests/support/catch.hpp>
#include <tests/support/decoder_truth.hpp>

namespace decoder_norms_eigen_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_decoder;

TEST_CASE("statistics: the shares of the ranks add up to the whole") {
  const DType rule = GENERATE(DType::f32, DType::bf16, DType::f16);
  const auto order = GENERATE(ReduceOrder::rank, ReduceOrder::ring, ReduceOrder::f32);
  const Float b(0, rule, {.values = {}, .track_bounds = true, .order = order});
  const auto x = b.activation("x", {3, 600});
  const auto whole = b.square_sums(x, 600), whole_sum = b.column_sums(x, 600);
  REQUIRE(b.shape(whole) == Shape(3, 1));
  Tensors<float> squares, sums;
  for (Index start = 0; start < 600; start += 150) {
    squares.push_back(b.square_sums(columns(b, x, start, 150), 600));
    sums.push_back(b.column_sums(columns(b, x, start, 150), 600));
    CHECK(b.shape(squares.back()) == Shape(3, 1));
  }
  const auto total = reduce(b, squares), total_sum = reduce(b, sums);
  const Exact truth = exact_sums(exact(x), 1, 2), true_sum = exact_sums(exact(x), 1, 1);
  CHECK(b.dtype(total) == DType::f32);
  CHECK(ratio(total, truth) <= 1);
  CHECK(ratio(whole, truth) <= 1);
  CHECK(ratio(total_sum, true_sum) <= 1);
  CHECK(ratio(whole_sum, true_sum) <= 1);
  CHECK(total.bound.maxCoeff() < 1e-4);  // as f32 is: in bf16 it would be about 1
  CHECK((squares[0].value.array() < whole.value.array() / 2).all());  // a share is partial
}

TEST_CASE("statistics: groups have their own, and one weight serves them all") {
  const EigenBackend<double> b;
  const auto x = b.activation("x", {2, 12});
  const auto squares = b.square_sums(x, 4), sums = b.column_sums(x, 4);
  REQUIRE(b.shape(squares) == Shape(2, 3));
  const auto w = load(b, full("w", Shape(4)));
  const auto y = b.mul_columns(b.rms_normalized(x, squares, 4, 1e-6), w);
  const auto z = b.centered(x, sums, 4);
  for (Index head = 0; head < 3; ++head) {
    const auto part = columns(b, x, 4 * head, 4);
    CHECK(
        same_bits(columns(b, y, 4 * head, 4).value,
                  b.mul_columns(b.rms_normalized(part, b.square_sums(part, 4), 4, 1e-6), w).value));
    CHECK(same_bits(columns(b, z, 4 * head, 4).value,
                    b.centered(part, b.column_sums(part, 4), 4).value));
    CHECK(std::abs(columns(b, z, 4 * head, 4).value.rowwise().sum().maxCoeff()) < 1e-15);
  }
}

TEST_CASE("wide tensors: a narrow rule does not round them until it stores them") {
  const Float b(0, DType::bf16);
  const auto filled = [&](float value, Index cols) {
    return b.input(Matrix<float>(Matrix<float>::Constant(2, cols, value)));
  };
  const auto sums = b.column_sums(filled(1, 257), 257);
  CHECK(sums.value(0, 0) == 257);  // 256 or 258 in bf16
  CHECK(b.dtype(sums) == DType::f32);
  // carried along
  for (const auto& wide :
       {b.slice(sums, 0, 1, 1), joined<float>(b, {sums, sums}, 1),
        b.keep_tokens(sums, {true, true}), b.scale(sums, Rational(1)), reduce<float>(b, {sums}),
        reduce<float>(b, {sums, sums}, Reduction::max)}) {
    CHECK(b.dtype(wide) == DType::f32);
    CHECK(wide.value(0, 0) == 257);
  }
  CHECK(reduce<float>(b, {sums, b.scale(sums, Rational(2))}).value(1, 0) == 771);
  CHECK(b.add(sums, sums).value(0, 0) == 514);
  CHECK(b.dtype(b.add(sums, sums)) == DType::f32);
  // stored, by whatever is not a sum, a factor, a part or a join
  const auto narrow = filled(1, 1);
  for (const auto& stored : {b.rounded(sums), b.add(sums, filled(0, 1)), b.mul(sums, narrow),
                             b.gelu(sums), reduce<float>(b, {sums, filled(0, 1)}),
                             rows(b, joined<float>(b, {sums, narrow}, 1), 0, 2)}) {
    CHECK(b.dtype(stored) == DType::bf16);
    CHECK(stored.value(0, 0) == 256);
  }
}

TEST_CASE("wide tensors: a residual's sum goes on unrounded and is stored as add stores it") {
  const DType rule = GENERATE(DType::f32, DType::bf16, DType::f16);
  const Float b(0, rule);
  const auto x = b.activation("x", {3, 64}), y = b.activation("y", {3, 64});
  const auto sum = b.add_unrounded(x, y);
  CHECK(same_bits(b.rounded(sum).value, b.add(x, y).value));
  CHECK(b.dtype(b.rounded(sum)) == rule);
  CHECK(same_bits(sum.value, Matrix<float>(x.value + y.value)));
  CHECK(same_bits(sum.value, b.add(x, y).value) == (rule == DType::f32));
  const auto of_sum = b.rms_normalized(sum, b.square_sums(sum, 64), 64, 1e-6);
  const auto stored = b.add(x, y);
  const auto of_stored = b.rms_normalized(stored, b.square_sums(stored, 64), 64, 1e-6);
  CHECK(same_bits(of_sum.value, of_stored.value) == (rule == DType::f32));
  CHECK(b.dtype(of_sum) == rule);
}

TEST_CASE("norms: the weight multiplies what was rounded, as in LlamaRMSNorm") {
  const Float b(0, DType::bf16);
  const auto x = b.activation("x", {8, 64});
  const auto w = load(b, full("w", Shape(64)));
  const auto normal = b.rms_normalized(x, b.square_sums(x, 64), 64, 1e-6);
  const auto y = b.mul_columns(normal, w);
  Index once = 0;
  for (Index t = 0; t < 8; ++t) {
    Wide squares = 0;
    for (Index c = 0; c < 64; ++c) squares += exact(x)(t, c) * exact(x)(t, c);
    for (Index c = 0; c < 64; ++c) {
      const Wide n = exact(x)(t, c) / std::sqrt(squares / 64 + 1e-6L);
      const float step = eigen::from_bf16(eigen::to_bf16(static_cast<float>(n)));
      const auto weight = static_cast<float>(w.at(c, 0));
      CHECK(normal.value(t, c) == step);
      CHECK(y.value(t, c) == eigen::from_bf16(eigen::to_bf16(step * weight)));
      const Wide both = n * static_cast<Wide>(weight);
      once += y.value(t, c) == eigen::from_bf16(eigen::to_bf16(static_cast<float>(both)));
    }
  }
  CHECK(once < 8 * 64);  // one rounding would be something else
}

}  // namespace

}  // namespace decoder_norms_eigen_tests
