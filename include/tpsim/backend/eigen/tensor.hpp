// SPDX-License-Identifier: MIT
// The numeric backend's activations.
#pragma once

#include <Eigen/Core>

#include <tpsim/core/shape.hpp>

namespace tpsim::eigen {

/// Row-major, as engines keep activations and checkpoints keep weights.
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// An activation [tokens, columns].
template <class Real>
struct Tensor {
  Matrix<Real> value;
  /// |value - exact| <= bound for each element, where exact is real arithmetic on the inputs and
  /// weights as given. Empty: exact, or not tracked.
  Matrix<double> bound;
  /// Kept as Real, not rounded to the rule: statistics and unrounded sums, which engines keep and
  /// exchange in fp32. A sum, factor, part or join of wide tensors is wide; other operations round.
  bool wide = false;

  [[nodiscard]] bool has_bound() const { return bound.size() > 0; }
  [[nodiscard]] double bound_at(Index t, Index c) const { return has_bound() ? bound(t, c) : 0.0; }
};

}  // namespace tpsim::eigen
