// SPDX-License-Identifier: MIT
// Kernel bodies of silu and gelu: in f64 and rounded once, as backend/eigen/activations.hpp.
#pragma once

#include <math.h>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// v / (1 + exp(-w)) without overflow.
TPSIM_HOST_DEVICE inline double gated(double v, double w) {
  const double e = exp(-fabs(w));
  return v * ((w < 0 ? e : 1.0) / (1.0 + e));
}
TPSIM_HOST_DEVICE inline double activated(Activation f, double v) {
  constexpr double root_half = 0.70710678118654752440;
  constexpr double linear = 1.59576912160573071176, cubic = linear * 0.044715;
  switch (f) {
    case Activation::silu:
      return gated(v, v);
    case Activation::gelu:
      return v * (0.5 * erfc(-v * root_half));
    case Activation::gelu_tanh:
      break;
  }
  return gated(v, v * (linear + cubic * (v * v)));
}

/// out := f(x)
/// Error before the rounding: at most 16 units of f64, as on the CPU: CUDA's exp is within 1 ulp (2
/// units), its erfc within 5 (10 units); sums, quotients and products are correctly rounded.
/// Source: CUDA C++ Programming Guide, Mathematical Functions, double-precision table.
struct Activate {
  ConstMatrix x;
  Activation f;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, static_cast<float>(activated(f, static_cast<double>(load(x, i)))));
  }
};

}  // namespace tpsim::cuda::body
