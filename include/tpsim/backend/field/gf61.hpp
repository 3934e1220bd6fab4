// SPDX-License-Identifier: MIT
// Arithmetic in GF(p), p = 2^61 - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tpsim {

/// A division by zero in the field. This says nothing about the program under test: the check is
/// repeated with another seed, it never passes and never fails because of it.
class Undefined : public std::runtime_error {
 public:
  explicit Undefined(const std::string& where = {})
      : std::runtime_error("division by zero in the field" + (where.empty() ? "" : " (" + where) +
                           (where.empty() ? "" : ")") + ": draw another seed") {}
};

namespace gf61 {

/// A canonical residue, in [0, p). Every function below takes and gives canonical residues.
using Element = std::uint64_t;
__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

inline constexpr Element p = (Element{1} << 61U) - 1;

/// How many products of canonical elements a Wide holds: 64 (p - 1)^2 + (p - 1) < 2^128, so that
/// an accumulator may even start from an earlier, folded sum.
inline constexpr int max_products = 64;

[[nodiscard]] constexpr Element subtract_p_once(Element s) { return s >= p ? s - p : s; }

/// Any 64 bits mod p. 2^64 = 8 p + 8: of uniform bits, the residues 0 to 7 come with probability
/// 9/2^64 and all others with 8/2^64. No value is more likely than 9/8 * 1/p (up to 2^-61): the
/// factor kappa of the soundness bound.
[[nodiscard]] constexpr Element reduce(std::uint64_t bits) {
  return subtract_p_once((bits & p) + (bits >> 61U));
}

[[nodiscard]] constexpr Element add(Element a, Element b) { return subtract_p_once(a + b); }
[[nodiscard]] constexpr Element sub(Element a, Element b) { return a >= b ? a - b : a + p - b; }
[[nodiscard]] constexpr Element neg(Element a) { return a == 0 ? 0 : p - a; }

/// A signed integer mod p.
[[nodiscard]] constexpr Element residue(std::int64_t n) {
  const auto bits = static_cast<std::uint64_t>(n);
  return n < 0 ? neg(reduce(0 - bits)) : reduce(bits);
}

/// Any 128-bit value mod p, as three limbs of 61, 61 and 6 bits. With two limbs, (x mod 2^61) +
/// (x >> 61), the upper one needs more than 64 bits beyond 8 products.
[[nodiscard]] constexpr Element fold(Wide x) {
  const Element s = (static_cast<Element>(x) & p) + (static_cast<Element>(x >> 61U) & p) +
                    static_cast<Element>(x >> 122U);  // < 2^62 + 64
  return subtract_p_once((s & p) + (s >> 61U));
}

[[nodiscard]] constexpr Element mul(Element a, Element b) {
  const Wide m = static_cast<Wide>(a) * b;  // < 2^122, so two limbs are enough
  return subtract_p_once((static_cast<Element>(m) & p) + static_cast<Element>(m >> 61U));
}

/// 1/a = a^(p - 2), about 120 multiplications. @throws Undefined when a is 0
[[nodiscard]] constexpr Element inverse(Element a) {
  if (a == 0) throw Undefined();
  Element result = 1;
  for (Element exponent = p - 2; exponent != 0; exponent >>= 1U) {
    if ((exponent & 1U) != 0) result = mul(result, a);
    a = mul(a, a);
  }
  return result;
}

/// Replaces every element by its inverse: one Fermat inverse and three products an element.
/// @throws Undefined when one of them is 0; then none has changed
/// Source: Montgomery, Speeding the Pollard and elliptic curve methods of factorization (1987).
inline void invert_all(std::span<Element> values) {
  std::vector<Element> before(values.size());  // the product of all earlier values
  Element product = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    before[i] = product;
    product = mul(product, values[i]);
  }
  Element rest = inverse(product);  // the inverse of the product of values[0 .. i]
  for (std::size_t i = values.size(); i-- > 0;) {
    const Element value = values[i];
    values[i] = mul(rest, before[i]);
    rest = mul(rest, value);
  }
}

}  // namespace gf61
}  // namespace tpsim
