// SPDX-License-Identifier: MIT
// What the tests of the numeric backend share: full tensors, loading, exact results.
#pragma once

#include <algorithm>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <properties/threads.hpp>
#include <tpsim/backend/eigen/eigen_backend.hpp>

namespace tpsim::test_eigen {

using eigen::Matrix;
template <class Real>
using Tensors = std::vector<typename EigenBackend<Real>::Tensor>;

/// A full tensor whose rows mean themselves; values may be null.
inline FullTensor full(const std::string& name, Shape shape,
                       std::shared_ptr<const Values> v = nullptr) {
  const auto meaning = std::make_shared<const LogicalTensor>(name, shape);
  StoredTensor stored{name, shape, {{0, shape.rows(), meaning, 0, 1}}, std::move(v)};
  return FullTensor(std::make_shared<const StoredTensor>(std::move(stored)));
}
/// Element (r, c) is 100 r + c; with `packed` also as raw f32 bytes.
struct Numbered final : Values {
  Numbered(Shape s, bool packed) : data(s.rows(), s.cols()), raw(packed) {
    for (Index r = 0; r < s.rows(); ++r)
      for (Index c = 0; c < s.cols(); ++c) data(r, c) = static_cast<float>(100 * r + c);
  }
  void read(Index row, Index col, std::span<float> out) const override { fill(row, col, out); }
  void read(Index row, Index col, std::span<double> out) const override { fill(row, col, out); }
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  [[nodiscard]] std::span<const std::byte> bytes(Index row, Index col) const override {
    if (!raw) return {};
    return std::as_bytes(std::span(&data(row, col), static_cast<std::size_t>(data.cols() - col)));
  }
  template <class T>
  void fill(Index row, Index col, std::span<T> out) const {
    for (T& x : out) x = static_cast<T>(data(row, col++));
  }
  Matrix<float> data;
  bool raw;
};
template <class Real>
eigen::Param load(const EigenBackend<Real>& b, const FullTensor& t, int dim = 0, Index start = 0,
                  Index length = -1) {
  if (length < 0) length = t.shape().dim(dim);
  eigen::Param p = b.empty(t.name(), t.shape().with(dim, length));
  b.copy(p, dim, 0, t, start, length);
  return p;
}
template <class M>
[[nodiscard]] bool same_bits(const M& a, const M& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof *a.data()) ==
             0;
}
template <class Real>
typename EigenBackend<Real>::Tensor reduce(const EigenBackend<Real>& b, const Tensors<Real>& parts,
                                           Reduction op = Reduction::sum) {
  std::vector<const eigen::Tensor<Real>*> in;
  for (const auto& p : parts) in.push_back(&p);
  return b.reduce(op, in);
}
using properties::Threads;
using Exact = Matrix<long double>;
template <class Real>
Exact exact(const eigen::Tensor<Real>& x) {
  return x.value.template cast<long double>();
}
template <class Real>
Exact exact_linear(const Exact& x, const eigen::Param& w, const EigenBackend<Real>& /*b*/) {
  Exact y = Exact::Zero(x.rows(), w.shape.rows());
  for (Index t = 0; t < y.rows(); ++t)
    for (Index n = 0; n < y.cols(); ++n)
      for (Index k = 0; k < x.cols(); ++k)
        y(t, n) += x(t, k) * static_cast<long double>(w.at(n, k));
  return y;
}
/// Largest |value - exact| / bound; above 1 (or NaN turned to 9) the bound is broken.
template <class Real>
double ratio(const eigen::Tensor<Real>& y, const Exact& truth) {
  double largest = 0;
  for (Index i = 0; i < y.value.size(); ++i) {
    const auto error = static_cast<double>(
        std::abs(static_cast<long double>(y.value.data()[i]) - truth.data()[i]));
    const double r = error == 0 ? 0 : error / y.bound.data()[i];
    largest = std::max(largest, r >= 0 ? r : 9.0);
  }
  return largest;
}

}  // namespace tpsim::test_eigen
