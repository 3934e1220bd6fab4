// SPDX-License-Identifier: MIT
// Instruction sets that kernels are compiled for next to the compiler's own choice.
#pragma once

#include <array>
#include <cstdint>

namespace tpsim {

/// Kernels are compiled for each of these in every x86-64 build and chosen when they run, so that
/// a package built for plain x86-64 uses what the machine has. All make the same bits.
enum class Isa : std::uint8_t {
  baseline,  ///< what the compiler targets anyway; the only one on other processors
  avx2,
  avx512  ///< avx512f and avx512dq
};
inline constexpr std::array<Isa, 3> all_isas = {Isa::baseline, Isa::avx2, Isa::avx512};

#if defined(__GNUC__) && defined(__x86_64__)
#define TPSIM_HAS_ISAS 1
#endif

/// Can this machine run kernels for it?
[[nodiscard]] inline bool has_isa(Isa isa) {
#ifdef TPSIM_HAS_ISAS
  if (isa == Isa::avx512)
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") != 0;
#endif
  return isa == Isa::baseline;
}

/// The widest that this machine has.
[[nodiscard]] inline Isa best_isa() {
  static const Isa best = has_isa(Isa::avx512) ? Isa::avx512
                          : has_isa(Isa::avx2) ? Isa::avx2
                                               : Isa::baseline;
  return best;
}

}  // namespace tpsim
