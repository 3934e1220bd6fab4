// SPDX-License-Identifier: MIT
// Dot products over GF(2^61-1) with the 52-bit multipliers of AVX-512 IFMA, eight columns at a
// time.
//
// With w = a + 2^31 b and x = c + 2^52 d (c of 52 bits, d of 9),
//   w x = a c + 2^31 b c + 2^52 a d + 2^83 b d,
// where a c and b c come as their lower 52 and upper bits: six instructions for eight products,
// about a third of what eight 64-bit multiplications take.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/backend/simd/isa.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim::gf61 {

/// Does this machine have the instructions?
[[nodiscard]] inline bool has_ifma() {
#ifdef TPSIM_HAS_ISAS
  static const bool has = has_isa(Isa::avx512) && __builtin_cpu_supports("avx512ifma") != 0;
  return has;
#else
  return false;
#endif
}

/// Numbers that `cols` columns of one token take: for each eight columns eight times c, then d.
[[nodiscard]] constexpr Index limbs_size(Index cols) { return (cols + 7) / 8 * 16; }

/// Columns past the last are 0.
inline void split_limbs(const Element* x, Index cols, Element* limbs) {
  std::fill_n(limbs, limbs_size(cols), 0U);
  for (Index c = 0; c < cols; ++c) {
    Element* to = limbs + c / 8 * 16 + c % 8;
    to[0] = x[c] & ((Element{1} << 52U) - 1);
    to[8] = x[c] >> 52U;
  }
}

#ifdef TPSIM_HAS_ISAS
#define TPSIM_IFMA __attribute__((target("avx512f,avx512dq,avx512ifma")))

namespace ifma {

typedef Element Words __attribute__((vector_size(64)));

/// sum += the lower 52 bits of a b, of the lower 52 bits of both; `high`: the upper 52 bits.
TPSIM_IFMA __attribute__((always_inline)) inline void low(Words& sum, const Words& a,
                                                          const Words& b) {
  __asm__("vpmadd52luq %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
TPSIM_IFMA __attribute__((always_inline)) inline void high(Words& sum, const Words& a,
                                                           const Words& b) {
  __asm__("vpmadd52huq %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
/// s *= 2^bits mod p for s < 2^61, in each lane: a rotation of 61 bits.
TPSIM_IFMA __attribute__((always_inline)) inline void shift(Words& s, unsigned bits) {
  s = ((s << bits) & p) | (s >> (61 - bits));
}

/// Columns of one call: sums of 128 numbers below 2^52 are below 2^59.
inline constexpr Index most_columns = 1024;

/// sums[t] += w . x_t over n <= most_columns columns; token t has its limbs at x + t * stride.
template <int Tokens>
TPSIM_IFMA void add_products(const Element* w, const Element* x, Index stride, Index n,
                             Element* sums) {
  Words ac_low[Tokens] = {}, ac_high[Tokens] = {}, ad[Tokens] = {};
  Words bc_low[Tokens] = {}, bc_high[Tokens] = {}, bd[Tokens] = {};
  for (Index k = 0; k < n; k += 8) {
    Words weight = {};
    if (k + 8 <= n)
      std::memcpy(&weight, w + k, sizeof weight);
    else
      std::memcpy(&weight, w + k, static_cast<std::size_t>(n - k) * sizeof(Element));
    const Words a = weight & ((Element{1} << 31U) - 1), b = weight >> 31U;
#pragma GCC unroll 4
    for (int t = 0; t < Tokens; ++t) {
      Words c, d;
      std::memcpy(&c, x + t * stride + 2 * k, sizeof c);
      std::memcpy(&d, x + t * stride + 2 * k + 8, sizeof d);
      low(ac_low[t], a, c);
      high(ac_high[t], a, c);
      low(ad[t], a, d);
      low(bc_low[t], b, c);
      high(bc_high[t], b, c);
      low(bd[t], b, d);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < Tokens; ++t) {
    Words at_52 = ac_high[t] + ad[t], at_31 = bc_low[t], at_83 = bc_high[t] + bd[t];
    shift(at_52, 52);
    shift(at_31, 31);
    shift(at_83, 83 - 61);
    const Words lanes = ac_low[t] + at_52 + at_31 + at_83;  // < 2^59 + 3 * 2^61
    std::array<Element, 8> each;
    std::memcpy(each.data(), &lanes, sizeof lanes);
    Wide sum = sums[t];
    for (const Element lane : each) sum += lane;
    sums[t] = fold(sum);
  }
}

}  // namespace ifma
#undef TPSIM_IFMA
#endif

}  // namespace tpsim::gf61
