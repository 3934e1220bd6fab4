// SPDX-License-Identifier: MIT
// Degree bounds of values as fractions of polynomials: what the exact reading's error bound needs.
#pragma once

#include <algorithm>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// An element is a fraction of polynomials in the inputs, the weights and the results of the
/// opaque functions; `num` and `den` bound the degrees of its two sides. Capped at 2^60, where
/// the error bound says nothing any more.
struct Degree {
  static constexpr Index cap = Index{1} << 60U;
  Index num = 0, den = 0;

  [[nodiscard]] static Index add(Index a, Index b) { return std::min(cap, a + b); }
  [[nodiscard]] static Index times(Index a, Index b) {
    return a != 0 && b > cap / a ? cap : std::min(cap, a * b);
  }
  friend Degree operator*(Degree a, Degree b) { return {add(a.num, b.num), add(a.den, b.den)}; }
  /// Both sides on the product of the denominators.
  friend Degree operator+(Degree a, Degree b) {
    return {std::max(add(a.num, b.den), add(b.num, a.den)), add(a.den, b.den)};
  }
  friend bool operator==(const Degree&, const Degree&) = default;
};

/// sum over k of x_k w_k with `terms` terms, each x_k a fraction of its own.
[[nodiscard]] inline Degree contracted(Degree x, Index terms) {
  return {Degree::add(Degree::add(x.num, 1), Degree::times(terms - 1, x.den)),
          Degree::times(terms, x.den)};
}

/// silu(v) = v / (1 + E(-v)): one call of the opaque E, whose result is a new variable.
[[nodiscard]] inline Degree activated(Degree x) { return {x.num, Degree::add(x.den, 1)}; }

/// What the exact reading's error bound is made of.
/// Source: Schwartz, Zippel: the difference of two arguments a/b - c/d has a numerator of degree
/// at most max(deg a + deg d, deg c + deg b).
struct SoundnessFigures {
  Index oracle_calls = 0;     ///< N, of both runs, each distinct element once a run
  Index argument_degree = 0;  ///< d, of the difference of two arguments
  Index output_degree = 0;    ///< D, of the difference of two outputs
  friend bool operator==(const SoundnessFigures&, const SoundnessFigures&) = default;
};

}  // namespace tpsim
