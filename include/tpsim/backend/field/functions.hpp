// SPDX-License-Identifier: MIT
// The named functions of the exact reading: which oracle each one is, and what a weakening makes
// of it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/core/shape.hpp>
#include <tpsim/core/weakening.hpp>

namespace tpsim {

/// Functions of activations (exp, rsqrt, phi) become the identity or an affine function under
/// those weakenings; functions of an integer that the code uses do not, they are no activations:
/// for 1/sqrt(n) there is fixed_scale. A view: the oracle must outlive it.
template <class Oracle>
class FieldFunctions {
 public:
  using Element = gf61::Element;

  FieldFunctions(const Oracle& oracle, Weakening weakening)
      : oracle_(&oracle), weakening_(weakening) {}

  [[nodiscard]] bool weak() const {
    return weakening_ == Weakening::identity_oracle || weakening_ == Weakening::affine_oracle;
  }
  /// What is left of a function of activations. @pre weak()
  [[nodiscard]] Element weakened(Element v) const {
    return weakening_ == Weakening::identity_oracle ? v : gf61::add(gf61::mul(3, v), 5);
  }

  /// E of a softmax, never 0: the exponential of sigmoid(). The maximum that a program subtracts
  /// cancels: exp(s - m) is E(s) / K(m), with the same K(m) in every term and in their sum.
  [[nodiscard]] Element exp(Element score) const {
    return weak() ? weakened(score) : oracle_->nonzero("exp", score);
  }
  /// 1 / sqrt(v), never 0: the root of divide_by_sqrt().
  [[nodiscard]] Element rsqrt(Element v) const {
    return weak() ? weakened(v) : oracle_->nonzero("rsqrt", v);
  }
  /// The normal distribution function of gelu(), with the error function.
  [[nodiscard]] Element phi(Element v) const { return oracle_->value("phi", v); }

  /// 1 / sqrt(n) of an integer: another n is another value.
  [[nodiscard]] Element rsqrt_of(Index n) const {
    const bool fixed = weakening_ == Weakening::fixed_scale;
    return oracle_->nonzero("rsqrt", static_cast<Element>(fixed ? 1 : n));
  }
  /// ALiBi's slope of a head of the whole model.
  [[nodiscard]] Element slope(Index total_heads, Index head) const {
    return oracle_->value("alibi slope of " + std::to_string(total_heads) + " heads",
                          static_cast<Element>(head));
  }
  /// A decimal constant: known by its bits alone.
  [[nodiscard]] Element constant(double c) const {
    return oracle_->value("constant", std::bit_cast<std::uint64_t>(c));
  }

 private:
  const Oracle* oracle_;
  Weakening weakening_;
};

}  // namespace tpsim
