// SPDX-License-Identifier: MIT
// Kernels for every instruction set of this machine make the bits of plain scalar code.
#include <bit>

#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/eigen_fixture.hpp>

namespace eigen_isas_tests {
namespace {

using namespace tpsim;
using namespace tpsim::test_eigen;

template <class Real>
Matrix<Real> numbers(Index rows, Index cols, std::uint64_t key) {
  Matrix<Real> m(rows, cols);
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < cols; ++c)  // all bits of the significand in use, so that sums round
      m(r, c) =
          static_cast<Real>(static_cast<double>(random_bits(row_key(key, r), c)) * 0x1p-63 - 1);
  return m;
}
/// The documented order, in scalars whose every result goes through memory: nothing is fused.
template <class Real>
Matrix<Real> plain_product(const Matrix<Real>& x, const Matrix<Real>& w) {
  Matrix<Real> y = Matrix<Real>::Zero(x.rows(), w.rows());
  for (Index t = 0; t < x.rows(); ++t)
    for (Index r = 0; r < w.rows(); ++r)
      for (Index begin = 0; begin < x.cols(); begin += eigen::kBlock) {
        volatile Real sum = 0;
        for (Index k = begin; k < std::min(x.cols(), begin + eigen::kBlock); ++k) {
          const volatile Real product = w(r, k) * x(t, k);
          sum = sum + product;
        }
        y(t, r) += sum;
      }
  return y;
}
template <class Real>
void same_on_every_isa() {
  const Index in = *rc::gen::element<Index>(1, 3, 4, 7, 255, 256, 259, 1025, 2100);
  const Index out = *rc::gen::inRange<Index>(1, 80), tokens = *rc::gen::inRange<Index>(1, 90);
  const auto key = *rc::gen::arbitrary<std::uint64_t>();
  const Matrix<Real> x = numbers<Real>(tokens, in, key), w = numbers<Real>(out, in, ~key);
  const Matrix<Real> plain = plain_product(x, w);
  const eigen::WeightRows<Real> rows = [&](Index row, Index k, Index, Real*) { return &w(row, k); };
  Matrix<double> first;
  for (const Isa isa : all_isas) {
    if (!has_isa(isa)) continue;
    const auto pack = [&](bool magnitude) {
      return eigen::PackedTokens<Real>(
          tokens, in,
          [&](Index t, Index k) { return magnitude ? std::abs(x(t, k)) + Real(0.125) : x(t, k); },
          isa);
    };
    const eigen::PackedTokens<Real> packed = pack(false), spread = pack(true);
    Matrix<Real> y(tokens, out), with_bound(tokens, out);
    Matrix<double> bound(tokens, out);
    eigen::tiled_product<Real>(packed, nullptr, in, rows, 0, 0, y, nullptr);
    eigen::tiled_product<Real>(packed, &spread, in, rows, 0x1p-24, 0x1p-17, with_bound, &bound);
    RC_ASSERT(same_bits(y, plain));
    RC_ASSERT(same_bits(with_bound, plain));
    if (first.size() == 0) first = bound;
    RC_ASSERT(same_bits(bound, first));
  }
}

TEST_CASE("instruction sets: products and bounds have the same bits on all that the CPU has") {
  CHECK(has_isa(best_isa()));
  CHECK(rc::check("float", same_on_every_isa<float>));
  CHECK(rc::check("double", same_on_every_isa<double>));
}

TEST_CASE("instruction sets: a fused product would be seen") {
  // The data of the test above tell one rounding from two in most elements.
  const Matrix<float> x = numbers<float>(4, 256, 1), w = numbers<float>(4, 256, 2);
  const Matrix<float> plain = plain_product(x, w);
  int different = 0;
  for (Index t = 0; t < 4; ++t)
    for (Index r = 0; r < 4; ++r) {
      float fused = 0;
      for (Index k = 0; k < 256; ++k) fused = std::fma(w(r, k), x(t, k), fused);
      different += fused != plain(t, r) ? 1 : 0;
    }
  CHECK(different > 8);
}

TEST_CASE("instruction sets: generated rows are the same on all that the CPU has") {
  CHECK(rc::check("rows", [] {
    const auto row = *rc::gen::arbitrary<std::uint64_t>();
    const Index col = *rc::gen::inRange<Index>(0, 100000), n = *rc::gen::inRange<Index>(0, 70);
    const int magnitude = *rc::gen::element(1, 3, 1000, 1 << 20);
    const auto size = static_cast<std::size_t>(n);
    for (const Isa isa : all_isas) {
      if (!has_isa(isa)) continue;
      std::vector<float> uniform(size + 1, 7), integers(size + 1, 7);
      std::vector<gf61::Element> residues(size + 1, 7);
      random_rows::fill_uniform(row, col, n, 0.37F, uniform.data(), isa);
      random_rows::fill_integers(row, col, n, magnitude, integers.data(), isa);
      random_rows::fill_residues(row, col, n, residues.data(), isa);
      for (Index i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        RC_ASSERT(uniform[at] == random_rows::uniform_at(row, col + i, 0.37F));
        RC_ASSERT(integers[at] == random_rows::integer_at(row, col + i, magnitude));
        RC_ASSERT(residues[at] == gf61::reduce(random_bits(row, col + i)));
      }
      RC_ASSERT(uniform[size] == 7);
      RC_ASSERT(integers[size] == 7);
      RC_ASSERT(residues[size] == 7U);
    }
  }));
}

}  // namespace

}  // namespace eigen_isas_tests
