// SPDX-License-Identifier: MIT
// silu and gelu: evaluated in double and rounded once, with their running bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <tpsim/backend/eigen/parallel.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// A value, and what computing it in double may have cost.
struct Evaluated {
  double value = 0, error = 0;
};

/// f of every element. Error: slope e_x, where |f'| <= slope everywhere; what f says; and the
/// rounding of the result.
template <class Real, class F>
[[nodiscard]] Tensor<Real> apply(const Precision<Real>& p, const Tensor<Real>& x, double slope,
                                 const F& f) {
  Tensor<Real> out{Matrix<Real>(x.value.rows(), x.value.cols()), {}};
  p.ensure_bound(out);
  parallel_for(x.value.rows(), x.value.size() > 1 << 12, [&](Index t) {
    for (Index c = 0; c < x.value.cols(); ++c) {
      const Evaluated y = f(static_cast<double>(x.value(t, c)));
      out.value(t, c) = static_cast<Real>(y.value);
      if (p.track_bounds) out.bound(t, c) = slope * x.bound_at(t, c) + y.error;
    }
  });
  return p.finish(std::move(out), p.operation_in_double(false, 0x1p-49));
}

/// v / (1 + exp(-w)) without overflow.
[[nodiscard]] inline double gated(double v, double w) {
  const double e = std::exp(-std::abs(w));
  return v * ((w < 0 ? e : 1.0) / (1.0 + e));
}

/// silu(a) = a / (1 + exp(-a)).
/// Error: 1.1 e_a, since |silu'| < 1.0999 everywhere; 16 units of double (2^-49) for exp (under
/// one ulp in glibc), sum, quotient and product; min(|a|, 1100) 2^-1074 where exp(-|a|) is
/// subnormal; and the rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> silu(const Precision<Real>& p, const Tensor<Real>& a) {
  return apply(p, a, 1.1, [](double v) {
    return Evaluated{gated(v, v), std::min(std::abs(v), 1100.0) * 0x1p-1074};
  });
}

/// gelu(x) = x Phi(x) = x erfc(-x / sqrt 2) / 2. Source: Hendrycks, Gimpel (2016).
/// Error: 1.13 e_x, since |gelu'| <= Phi(sqrt 2) + sqrt 2 phi(sqrt 2) < 1.1290; 2^-49 for erfc (a
/// few ulps in glibc) and the products; (x^2 + 1) 2^-52 for the two roundings of its argument z,
/// since |z erfc'(z) / erfc(z)| <= 2 z^2 + 1; min(|x|, 64) 2^-1072 where erfc is subnormal; and the
/// rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> gelu(const Precision<Real>& p, const Tensor<Real>& x) {
  return apply(p, x, 1.13, [](double v) {
    constexpr double root_half = 0.70710678118654752440;
    const double y = v * (0.5 * std::erfc(-v * root_half)), z = std::min(std::abs(v), 64.0);
    return Evaluated{y, std::abs(y) * (z * z + 1) * 0x1p-52 + z * 0x1p-1072};
  });
}

/// gelu_tanh(x) = x (1 + tanh u) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
/// Error: 1.13 e_x, since |gelu_tanh'| < 1.1290 everywhere (at x = 1.42; least -0.1290); 2^-49 for
/// exp, sum, quotient and product; 2 |u| 2^-50 for the six roundings in 2 u; min(|x|, 64) 2^-1072
/// where exp is subnormal; and the rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> gelu_tanh(const Precision<Real>& p, const Tensor<Real>& x) {
  return apply(p, x, 1.13, [](double v) {
    constexpr double linear = 1.59576912160573071176, cubic = linear * 0.044715;
    const double w = v * (linear + cubic * (v * v)), y = gated(v, w);
    return Evaluated{y, std::abs(y) * std::min(std::abs(w), 2000.0) * 0x1p-50 +
                            std::min(std::abs(v), 64.0) * 0x1p-1072};
  });
}

}  // namespace tpsim::eigen
