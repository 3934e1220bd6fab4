// SPDX-License-Identifier: MIT
// How far a softmax-weighted mean may be off when its scores and its values are.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <tpsim/backend/eigen/tensor.hpp>

namespace tpsim::eigen {

struct AttentionBounds {
  Matrix<double> q, k, v;  ///< of the elements; zeros where a tensor is exact
};
template <class Real>
[[nodiscard]] Matrix<double> bound_or_zeros(const Tensor<Real>& x) {
  if (x.has_bound()) return x.bound;
  return Matrix<double>::Zero(x.value.rows(), x.value.cols());
}

/// Let o be the computed mean of the values v_j with weights a_j (not normalised), d_j the error of
/// score j and e_j that of v_j. The exact weights are a_j x_j with exp(-d_j) <= x_j <= exp(d_j), so
/// the exact mean differs from o by
///   sum a_j x_j (v_j + f_j - o) / sum a_j x_j,  |f_j| <= e_j,
/// and as sum a_j (v_j - o) = 0 up to the rounding of o, that is at most
///   sum a_j ((exp(d_j) - 1) |v_j - o| + exp(d_j) e_j) / sum a_j exp(-d_j).
/// It is never more than max_j (|v_j - o| + e_j), since the exact mean lies between the values;
/// this alone is used when a d_j is above 300. A sink is a key with the value 0.
/// In double: d_j grows by 2^-53 |score - top| + 2^-50 for subtraction and exp (under one ulp in
/// glibc), a_j by 2^-1022 where exp is subnormal; 2 n + 6 units of double for the sums over n keys
/// and the quotient.
class SoftmaxBound {
 public:
  SoftmaxBound(Index columns, const std::vector<double>& mean, Index keys)
      : mean_(&mean),
        sums_(static_cast<std::size_t>(columns), 0.0),
        hull_(static_cast<std::size_t>(columns), 0.0),
        unit_(static_cast<double>(2 * keys + 6) * 0x1p-53) {}

  /// `below` is the score less the largest.
  template <class Real>
  void add_key(double weight, double error, double below, const Real* value,
               const double* value_error) {
    const auto [low, high, off] = factors(error, below);
    const double moved = weight * (off + unit_) + kTiny * high;
    const double kept = weight * high + kTiny * high;
    smallest_ += weight * low;
    total_ += weight;
    for (std::size_t c = 0; c < sums_.size(); ++c) {
      const double distance = std::abs(static_cast<double>(value[c]) - (*mean_)[c]);
      sums_[c] += moved * distance + kept * value_error[c];
      hull_[c] = std::max(hull_[c], distance + value_error[c]);
    }
  }
  void add_sink(double weight, double below) {
    const auto [low, high, off] = factors(0, below);
    smallest_ += weight * low;
    total_ += weight;
    for (std::size_t c = 0; c < sums_.size(); ++c) {
      const double distance = std::abs((*mean_)[c]);
      sums_[c] += (weight * (off + unit_) + kTiny * high) * distance;
      hull_[c] = std::max(hull_[c], distance);
    }
  }
  void finish(double* out) const {
    for (std::size_t c = 0; c < sums_.size(); ++c) {
      const double sharp = (sums_[c] + unit_ * total_ * std::abs((*mean_)[c])) / smallest_;
      out[c] = wild_ ? hull_[c] : std::min(hull_[c], sharp);  // hull_ if `sharp` is NaN
    }
  }

 private:
  static constexpr double kTiny = 0x1p-1022;
  struct Factors {
    double low, high, off;  ///< exp(-d), exp(d), exp(d) - 1
  };
  [[nodiscard]] Factors factors(double error, double below) {
    const double d = error + std::abs(below) * 0x1p-53 + 0x1p-50;
    if (!(d <= 300)) {
      wild_ = true;
      return {0, 1, 0};
    }
    const double off = std::expm1(d);
    return {std::exp(-d), 1 + off, off};
  }

  const std::vector<double>* mean_;
  std::vector<double> sums_, hull_;  ///< [columns]
  double unit_, smallest_ = 0, total_ = 0;
  bool wild_ = false;
};

}  // namespace tpsim::eigen
