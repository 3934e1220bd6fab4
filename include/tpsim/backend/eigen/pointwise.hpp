// SPDX-License-Identifier: MIT
// Element by element: sums, products, factors, and what belongs to a residual.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/eigen/param.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// y [tokens, n] + bias [n] on every row. @throws LayoutError (state)
template <class Real>
[[nodiscard]] Tensor<Real> add_bias(const Precision<Real>& p, const Tensor<Real>& y,
                                    const Param& bias) {
  if (bias.shape.rank() != 1 || bias.shape.rows() != y.value.cols())
    throw LayoutError("add_bias cannot add " + bias.shape.str() + " to " + shape_of(y).str(),
                      {{"state", "a bias needs one entry for each column"}});
  Tensor<Real> out = y;
  out.wide = false;
  p.ensure_bound(out);
  for (Index c = 0; c < y.value.cols(); ++c)
    out.value.col(c).array() += static_cast<Real>(bias.at(c, 0));
  return p.finish(std::move(out), p.operation());
}

/// Error: |a| e_b + |b| e_a + e_a e_b, and the rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> mul(const Precision<Real>& p, const Tensor<Real>& a,
                               const Tensor<Real>& b) {
  require_same_shape("mul", a, b);
  Tensor<Real> out{a.value.cwiseProduct(b.value), {}};
  p.ensure_bound(out);
  if (p.track_bounds)
    for (Index t = 0; t < out.value.rows(); ++t)
      for (Index c = 0; c < out.value.cols(); ++c) {
        const double ea = a.bound_at(t, c), eb = b.bound_at(t, c);
        out.bound(t, c) = std::abs(static_cast<double>(a.value(t, c))) * eb +
                          std::abs(static_cast<double>(b.value(t, c))) * ea + ea * eb;
      }
  return p.finish(std::move(out), p.operation());
}

/// x [tokens, n rows] times w [rows], which is repeated along the columns.
/// Error: |w| e_x, and the rounding of the result. @throws LayoutError (partners)
template <class Real>
[[nodiscard]] Tensor<Real> mul_columns(const Precision<Real>& p, const Tensor<Real>& x,
                                       const Param& w) {
  require_columns_fit(shape_of(x), w.shape);
  const Index period = w.shape.rows();
  std::vector<Real> factors;
  for (Index c = 0; c < period; ++c) factors.push_back(static_cast<Real>(w.at(c, 0)));
  Tensor<Real> out = x;
  out.wide = false;
  p.ensure_bound(out);
  for (Index t = 0; t < x.value.rows(); ++t)
    for (Index c = 0; c < x.value.cols(); ++c) {
      const Real factor = factors[static_cast<std::size_t>(c % period)];
      out.value(t, c) *= factor;
      if (p.track_bounds) out.bound(t, c) *= std::abs(static_cast<double>(factor));
    }
  return p.finish(std::move(out), p.operation());
}

/// a + b, rounded to the rule, or kept as the sum in Real is when `wide`.
/// Error: e_a + e_b, and the rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> add(const Precision<Real>& p, const Tensor<Real>& a,
                               const Tensor<Real>& b, bool wide) {
  require_same_shape("add", a, b);
  Tensor<Real> out = a;
  out.wide = wide;
  p.ensure_bound(out);
  out.value += b.value;
  if (p.track_bounds && b.has_bound()) out.bound += b.bound;
  return p.finish(std::move(out), p.operation(wide));
}

/// A wide tensor stored by the rule. Error: that of this rounding alone.
template <class Real>
[[nodiscard]] Tensor<Real> rounded(const Precision<Real>& p, Tensor<Real> x) {
  if (!std::exchange(x.wide, false) || !p.is_rounded()) return x;
  p.ensure_bound(x);
  return p.finish(std::move(x), rounding_of(p.rule));
}

/// Parts of which some are wide and some are not, all stored by the rule; others as they are.
template <class Real>
class OneWidth {
 public:
  using Parts = std::span<const Tensor<Real>* const>;
  OneWidth(const Precision<Real>& p, Parts parts) : parts_(parts) {
    const auto wide =
        std::count_if(parts.begin(), parts.end(), [](const auto* x) { return x->wide; });
    if (wide == 0 || wide == static_cast<std::ptrdiff_t>(parts.size())) return;
    for (const Tensor<Real>* x : parts) stored_.push_back(rounded(p, *x));
    for (const Tensor<Real>& x : stored_) pointers_.push_back(&x);
    parts_ = pointers_;
  }
  OneWidth(const OneWidth&) = delete;
  OneWidth& operator=(const OneWidth&) = delete;
  [[nodiscard]] Parts parts() const { return parts_; }

 private:
  std::vector<Tensor<Real>> stored_;
  std::vector<const Tensor<Real>*> pointers_;
  Parts parts_;
};

/// k x in double, rounded once, for a k that is itself within 2^-52 of what is meant; wide if x is.
/// Error: |k| e_x, 2^-51 for k and the product, and the rounding of the result.
template <class Real>
[[nodiscard]] Tensor<Real> times(const Precision<Real>& p, const Tensor<Real>& x, double k) {
  Tensor<Real> out = x;
  p.ensure_bound(out);
  out.value = (x.value.template cast<double>() * k).template cast<Real>();
  if (p.track_bounds) out.bound *= std::abs(k);
  return p.finish(std::move(out), p.operation_in_double(x.wide, 0x1p-51));
}

}  // namespace tpsim::eigen
