// SPDX-License-Identifier: MIT
// A decoder's operations told a second time, in long double and element by element, and inputs
// whose exact numbers are known beside what a backend holds of them.
#pragma once

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include <tests/support/eigen_fixture.hpp>

namespace tpsim::test_decoder {

using namespace test_eigen;
using Wide = long double;

inline Exact exact_sums(const Exact& x, Index groups, int power) {
  Exact y = Exact::Zero(x.rows(), groups);
  for (Index t = 0; t < x.rows(); ++t)
    for (Index c = 0; c < x.cols(); ++c)
      y(t, c / (x.cols() / groups)) += power == 1 ? x(t, c) : x(t, c) * x(t, c);
  return y;
}
inline Exact exact_centered(const Exact& x, const Exact& sums, Index count) {
  Exact y = x;
  for (Index t = 0; t < x.rows(); ++t)
    for (Index c = 0; c < x.cols(); ++c)
      y(t, c) -= sums(t, c / (x.cols() / sums.cols())) / static_cast<Wide>(count);
  return y;
}
inline Exact exact_normalized(const Exact& x, const Exact& sums, Index count, double eps) {
  Exact y = x;
  for (Index t = 0; t < x.rows(); ++t)
    for (Index c = 0; c < x.cols(); ++c)
      y(t, c) /= std::sqrt(sums(t, c / (x.cols() / sums.cols())) / static_cast<Wide>(count) +
                           static_cast<Wide>(eps));
  return y;
}
inline Exact exact_columns(const Exact& x, const eigen::Param& w) {
  Exact y = x;
  for (Index t = 0; t < x.rows(); ++t)
    for (Index c = 0; c < x.cols(); ++c) y(t, c) *= static_cast<Wide>(w.at(c % w.shape.rows(), 0));
  return y;
}
inline Wide exact_gelu(Wide v) { return v / 2 * std::erfc(-v / std::sqrt(2.0L)); }
inline Wide exact_gelu_tanh(Wide v) {
  const Wide u = std::sqrt(2 / std::numbers::pi_v<Wide>) * (v + 0.044715L * v * v * v);
  return v / (1 + std::exp(-2 * u));
}

/// Pairs as complex numbers, frequencies as given.
inline Exact exact_rope(const Exact& x, const std::vector<Index>& positions, Index head_dim,
                        Index rotary, bool interleaved, const std::vector<double>& frequencies,
                        double magnitude) {
  Exact y = x;
  for (Index t = 0; t < x.rows(); ++t)
    for (Index head = 0; head < x.cols(); head += head_dim)
      for (Index j = 0; j < rotary / 2; ++j) {
        const Index a = head + (interleaved ? 2 * j : j);
        const Index b = interleaved ? a + 1 : a + rotary / 2;
        const Wide angle = static_cast<Wide>(positions[static_cast<std::size_t>(t)]) *
                           static_cast<Wide>(frequencies[static_cast<std::size_t>(j)]);
        const Wide m = static_cast<Wide>(magnitude);
        y(t, a) = m * (x(t, a) * std::cos(angle) - x(t, b) * std::sin(angle));
        y(t, b) = m * (x(t, b) * std::cos(angle) + x(t, a) * std::sin(angle));
      }
  return y;
}

/// Slopes as the paper's code makes them: a geometric series, and for other numbers of heads every
/// second of twice the next smaller power of two.
inline std::vector<Wide> alibi_slopes(Index n) {
  if ((n & (n - 1)) == 0) {
    std::vector<Wide> out;
    for (Index i = 0; i < n; ++i)
      out.push_back(std::pow(2.0L, -8.0L * static_cast<Wide>(i + 1) / static_cast<Wide>(n)));
    return out;
  }
  Index below = 1;
  while (below * 2 < n) below *= 2;
  std::vector<Wide> out = alibi_slopes(below), more = alibi_slopes(2 * below);
  for (std::size_t i = 0; static_cast<Index>(out.size()) < n; i += 2) out.push_back(more[i]);
  return out;
}

/// Every pair of a query and a key, masked where it is not seen.
inline Exact exact_attention(const AttentionSpec& s, const Exact& q, const Exact& k, const Exact& v,
                             const eigen::Param* sinks) {
  Exact y = Exact::Zero(q.rows(), s.heads * s.v_head_dim);
  std::vector<Wide> slopes;
  if (s.alibi) slopes = alibi_slopes(s.alibi->total_heads);
  for (Index t = 0; t < q.rows(); ++t)
    for (Index h = 0; h < s.heads; ++h) {
      const Index g = h * s.kv_heads / s.heads, position = s.first_position + t;
      Wide total = sinks != nullptr ? std::exp(static_cast<Wide>(sinks->at(h, 0))) : 0;
      for (Index j = 0; j < k.rows(); ++j) {
        if (j > position || (s.window && position - j >= *s.window)) continue;
        Wide score = 0;
        for (Index c = 0; c < s.head_dim; ++c)
          score += q(t, h * s.head_dim + c) * k(j, g * s.head_dim + c);
        score /= std::sqrt(static_cast<Wide>(s.scale_dim));
        if (s.alibi)
          score += slopes[static_cast<std::size_t>(s.alibi->first_head + h)] *
                   static_cast<Wide>(j - position);
        const Wide weight = std::exp(score);
        total += weight;
        for (Index c = 0; c < s.v_head_dim; ++c)
          y(t, h * s.v_head_dim + c) += weight * v(j, g * s.v_head_dim + c);
      }
      y.row(t).segment(h * s.v_head_dim, s.v_head_dim) /= total;
    }
  return y;
}

/// What a backend holds, and the exact numbers that it stands for.
template <class Real>
struct Held {
  eigen::Tensor<Real> tensor;
  Exact truth;
};
/// Numbers of size up to `size`. With `noise`, the backend's are off by up to that part of them and
/// carry exactly that as their bound; without, they are exact.
template <class Real>
Held<Real> held(const EigenBackend<Real>& b, std::mt19937_64& rng, Index rows, Index cols,
                double noise = 0, double size = 2) {
  std::uniform_real_distribution<double> any(-1, 1);
  Held<Real> out;
  Exact off(rows, cols);
  out.truth.resize(rows, cols);
  for (Index i = 0; i < off.size(); ++i) {
    out.truth.data()[i] = static_cast<Wide>(size * any(rng));
    off.data()[i] = out.truth.data()[i] * (1 + static_cast<Wide>(noise * any(rng)));
  }
  out.tensor = b.input(Matrix<Real>(off.template cast<Real>()));
  if (noise == 0)
    out.truth = exact(out.tensor);
  else
    out.tensor.bound =
        (exact(out.tensor) - out.truth).cwiseAbs().template cast<double>() * (1 + 0x1p-50);
  return out;
}

using Float = EigenBackend<float>;

/// Parts of a tensor, and their join.
template <class Real>
eigen::Tensor<Real> rows(const EigenBackend<Real>& b, const eigen::Tensor<Real>& x, Index start,
                         Index length) {
  return b.slice(x, 0, start, length);
}
template <class Real>
eigen::Tensor<Real> columns(const EigenBackend<Real>& b, const eigen::Tensor<Real>& x, Index start,
                            Index length) {
  return b.slice(x, 1, start, length);
}
template <class Real>
eigen::Tensor<Real> joined(const EigenBackend<Real>& b, const Tensors<Real>& parts, int dim) {
  std::vector<const eigen::Tensor<Real>*> in;
  for (const auto& p : parts) in.push_back(&p);
  return b.concat(in, dim);
}

}  // namespace tpsim::test_decoder
