// SPDX-License-Identifier: MIT
// How the numeric backend rounds the result of an operation, and how its bound is closed.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/eigen/tensor.hpp>
#include <tpsim/core/error.hpp>

namespace tpsim::eigen {

template <class Real>
struct Precision {
  static constexpr DType own_type = std::is_same_v<Real, float> ? DType::f32 : DType::f64;

  DType rule = own_type;      ///< what activations are rounded to, unless they are wide
  bool track_bounds = false;  ///< carry a bound on |computed - exact| along

  [[nodiscard]] DType dtype(const Tensor<Real>& x) const {
    if constexpr (std::is_same_v<Real, double>)
      return DType::f64;
    else
      return x.wide ? DType::f32 : rule;
  }
  /// Are activations rounded further than Real?
  [[nodiscard]] bool is_rounded() const { return own_type == DType::f32 && is_16bit(rule); }
  /// One operation in Real whose result is then stored by the rule, or kept wide.
  [[nodiscard]] Rounding operation(bool wide = false) const {
    return is_rounded() && !wide ? rounded_twice(rule) : rounding_of(own_type);
  }
  /// The same for a result that is computed in double with a relative error of `inner` before.
  [[nodiscard]] Rounding operation_in_double(bool wide, double inner) const {
    const Rounding error = operation(wide);
    return {error.unit + inner, error.eta};
  }

  /// Zeros of this shape, with room for a bound when bounds are kept.
  [[nodiscard]] Tensor<Real> make(Index rows, Index cols, bool wide = false) const {
    Tensor<Real> out{Matrix<Real>::Zero(rows, cols), {}, wide};
    ensure_bound(out);
    return out;
  }
  void ensure_bound(Tensor<Real>& x) const {
    if (!track_bounds)
      x.bound.resize(0, 0);
    else if (!x.has_bound())
      x.bound.setZero(x.value.rows(), x.value.cols());
  }
  /// Rounds to the rule, unless y is wide, and closes the bound.
  [[nodiscard]] Tensor<Real> finish(Tensor<Real> y, Rounding error) const {
    if constexpr (std::is_same_v<Real, float>)
      if (!y.wide) round_to(rule, y.value.data(), y.value.size());
    if (track_bounds)
      y.bound = (y.bound.array() + error.unit * y.value.template cast<double>().array().abs() +
                 error.eta) *
                (1 + 0x1p-40);
    return y;
  }
};

template <class Real>
[[nodiscard]] Shape shape_of(const Tensor<Real>& x) {
  return {x.value.rows(), x.value.cols()};
}
/// @throws LayoutError (state)
template <class Real>
void require_same_shape(const char* what, const Tensor<Real>& a, const Tensor<Real>& b) {
  if (shape_of(a) != shape_of(b))
    throw LayoutError(std::string(what) + " needs equal shapes",
                      {{"state", shape_of(a).str() + " and " + shape_of(b).str()}});
}

}  // namespace tpsim::eigen
