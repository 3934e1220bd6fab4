// SPDX-License-Identifier: MIT
// Body for each_isa.hpp: rows of random numbers. Without vectors where there is no fast product
// of 64-bit lanes.
#ifdef TPSIM_ISA

namespace tpsim::random_rows::TPSIM_ISA {

#if TPSIM_ISA_BYTES > 16
typedef std::uint64_t Words __attribute__((vector_size(TPSIM_ISA_BYTES)));
typedef std::int32_t Halves __attribute__((vector_size(TPSIM_ISA_BYTES / 2)));
typedef float Floats __attribute__((vector_size(TPSIM_ISA_BYTES / 2)));
inline constexpr Index lanes = TPSIM_ISA_BYTES / 8;

/// Counters of columns [col, col + lanes) before the finaliser.
TPSIM_ISA_TARGET inline void start(std::uint64_t row, Index col, Words& x) {
  for (Index i = 0; i < lanes; ++i)
    x[i] = row + counter_step * (static_cast<std::uint64_t>(col + i) + 1);
}
/// tpsim::mix of each lane.
TPSIM_ISA_TARGET inline void mix_lanes(const Words& in, Words& x) {
  x = (in ^ (in >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  x = x ^ (x >> 31U);
}
#endif

TPSIM_ISA_TARGET inline void uniform(std::uint64_t row, Index col, Index n, float factor,
                                     float* out) {
  Index i = 0;
#if TPSIM_ISA_BYTES > 16
  Words at = {}, bits;
  for (start(row, col, at); i + lanes <= n; i += lanes, at += counter_step * lanes) {
    mix_lanes(at, bits);
    const Halves whole = __builtin_convertvector(bits >> 40U, Halves) - (1 << 23);
    const Floats value = __builtin_convertvector(whole, Floats) * factor;
    std::memcpy(out + i, &value, sizeof value);
  }
#endif
  for (; i < n; ++i) out[i] = uniform_at(row, col + i, factor);
}

TPSIM_ISA_TARGET inline void integers(std::uint64_t row, Index col, Index n, int magnitude,
                                      float* out) {
  Index i = 0;
#if TPSIM_ISA_BYTES > 16
  const auto choices = static_cast<std::uint64_t>(2 * magnitude);
  Words at = {}, bits;
  for (start(row, col, at); i + lanes <= n; i += lanes, at += counter_step * lanes) {
    mix_lanes(at, bits);
    const Words upper = bits >> 32U;
    // 6 and 2 are the usual ones; products of 64-bit lanes are slow
    const Words scaled = magnitude == 3   ? (upper << 2U) + (upper << 1U)
                         : magnitude == 1 ? upper << 1U
                                          : upper * choices;
    const Words choice = scaled >> 32U;
    Halves value = __builtin_convertvector(choice, Halves) - magnitude;
    value -= value >= 0;  // true is -1
    const Floats real = __builtin_convertvector(value, Floats);
    std::memcpy(out + i, &real, sizeof real);
  }
#endif
  for (; i < n; ++i) out[i] = integer_at(row, col + i, magnitude);
}

TPSIM_ISA_TARGET inline void residues(std::uint64_t row, Index col, Index n, std::uint64_t* out) {
  Index i = 0;
#if TPSIM_ISA_BYTES > 16
  Words at = {}, bits;
  for (start(row, col, at); i + lanes <= n; i += lanes, at += counter_step * lanes) {
    mix_lanes(at, bits);
    const Words sum = (bits & gf61::p) + (bits >> 61U), less = sum - gf61::p;
    // sum < p exactly where the subtraction wraps: then its top bit is set
    const Words residue = less + (gf61::p & -(less >> 63U));
    std::memcpy(out + i, &residue, sizeof residue);
  }
#endif
  for (; i < n; ++i) out[i] = gf61::reduce(random_bits(row, col + i));
}

}  // namespace tpsim::random_rows::TPSIM_ISA
#endif
