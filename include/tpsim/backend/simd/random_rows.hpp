// SPDX-License-Identifier: MIT
// Rows of position-addressed random numbers as floats, small integers and residues, on the widest
// vectors of the machine. Every instruction set makes the same numbers.
#pragma once

#include <cstring>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/backend/simd/isa.hpp>
#include <tpsim/core/random.hpp>

namespace tpsim::random_rows {

/// Uniform in [-2^23, 2^23) times `factor`.
[[nodiscard]] inline float uniform_at(std::uint64_t row, Index col, float factor) {
  const auto bits = static_cast<std::int32_t>(random_bits(row, col) >> 40U);
  return static_cast<float>(bits - (1 << 23)) * factor;
}
/// Uniform in [-magnitude, magnitude] without 0.
[[nodiscard]] inline float integer_at(std::uint64_t row, Index col, int magnitude) {
  // 0 .. 2m - 1 from the upper half of the bits, then without 0
  const auto choices = static_cast<std::uint64_t>(2 * magnitude);
  const auto choice = static_cast<int>(((random_bits(row, col) >> 32U) * choices) >> 32U);
  const int value = choice - magnitude;
  return static_cast<float>(value + static_cast<int>(value >= 0));
}
/// What random_bits adds from one column to the next.
inline constexpr std::uint64_t counter_step = 0x9e3779b97f4a7c15U;

}  // namespace tpsim::random_rows

#define TPSIM_ISA_BODY <tpsim/backend/simd/random_body.hpp>
#include <tpsim/backend/simd/each_isa.hpp>

namespace tpsim::random_rows {

/// uniform_at for columns [col, col + n).
inline void fill_uniform(std::uint64_t row, Index col, Index n, float factor, float* out,
                         Isa isa = best_isa()) {
#ifdef TPSIM_HAS_ISAS
  if (isa == Isa::avx512) return avx512::uniform(row, col, n, factor, out);
  if (isa == Isa::avx2) return avx2::uniform(row, col, n, factor, out);
#endif
  static_cast<void>(isa);
  baseline::uniform(row, col, n, factor, out);
}
/// integer_at for columns [col, col + n).
inline void fill_integers(std::uint64_t row, Index col, Index n, int magnitude, float* out,
                          Isa isa = best_isa()) {
#ifdef TPSIM_HAS_ISAS
  if (isa == Isa::avx512) return avx512::integers(row, col, n, magnitude, out);
  if (isa == Isa::avx2) return avx2::integers(row, col, n, magnitude, out);
#endif
  static_cast<void>(isa);
  baseline::integers(row, col, n, magnitude, out);
}
/// gf61::reduce(random_bits) for columns [col, col + n).
inline void fill_residues(std::uint64_t row, Index col, Index n, gf61::Element* out,
                          Isa isa = best_isa()) {
#ifdef TPSIM_HAS_ISAS
  if (isa == Isa::avx512) return avx512::residues(row, col, n, out);
  if (isa == Isa::avx2) return avx2::residues(row, col, n, out);
#endif
  static_cast<void>(isa);
  baseline::residues(row, col, n, out);
}

}  // namespace tpsim::random_rows
