// SPDX-License-Identifier: MIT
// Exact fractions: how often a term counts.
#pragma once

#include <numeric>
#include <string>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// num / den in lowest terms, den > 0. Compares as a number.
/// @throws LayoutError (state) when a result leaves 64 bits, or a denominator is 0
class Rational {
 public:
  constexpr Rational() = default;
  constexpr Rational(Index whole) : num_(whole) {}  // NOLINT(google-explicit-constructor)
  Rational(Index num, Index den) : num_(num), den_(den) {
    if (den == 0) throw LayoutError("a coefficient divides by zero", {{"state", "x / 0"}});
    const Index g = std::gcd(num, den);
    num_ = num / g;
    den_ = den / g;
    if (den_ < 0) {
      num_ = times(num_, -1);
      den_ = times(den_, -1);
    }
  }

  [[nodiscard]] constexpr Index num() const { return num_; }
  [[nodiscard]] constexpr Index den() const { return den_; }
  /// "3" or "1/4"
  [[nodiscard]] std::string str() const {
    return den_ == 1 ? std::to_string(num_) : std::to_string(num_) + "/" + std::to_string(den_);
  }

  friend Rational operator+(Rational a, Rational b) {
    if (a.den_ == b.den_) return {plus(a.num_, b.num_), a.den_};
    return {plus(times(a.num_, b.den_), times(b.num_, a.den_)), times(a.den_, b.den_)};
  }
  friend Rational operator-(Rational a) { return {times(a.num_, -1), a.den_}; }
  friend Rational operator-(Rational a, Rational b) { return a + -b; }
  friend Rational operator*(Rational a, Rational b) {
    const Rational x(a.num_, b.den_), y(b.num_, a.den_);  // first reduce, so that less overflows
    return {times(x.num_, y.num_), times(x.den_, y.den_)};
  }
  friend constexpr bool operator==(Rational a, Rational b) = default;
  friend bool operator<(Rational a, Rational b) {
    return times(a.num_, b.den_) < times(b.num_, a.den_);
  }
  friend bool operator>(Rational a, Rational b) { return b < a; }

 private:
  static Index checked(bool overflow, Index value) {
    if (overflow)
      throw LayoutError("a coefficient is too large",
                        {{"state", "a term counts more often than 64 bits can tell"}});
    return value;
  }
  static Index plus(Index a, Index b) {
    Index r = 0;
    const bool overflow = __builtin_add_overflow(a, b, &r);
    return checked(overflow, r);
  }
  static Index times(Index a, Index b) {
    Index r = 0;
    const bool overflow = __builtin_mul_overflow(a, b, &r);
    return checked(overflow, r);
  }

  Index num_ = 0, den_ = 1;
};

}  // namespace tpsim
