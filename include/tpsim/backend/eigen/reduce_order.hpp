// SPDX-License-Identifier: MIT
// The orders and roundings in which engines sum over ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tpsim {

/// How a reduction adds the ranks' parts l_0 ... l_{R-1}.
///
/// rank: in rank order; every hop rounds to the model's type.
/// ring: as NCCL's ring. The elements of the tensor, row by row, are R chunks of equal size (the
///   last ones short or empty). Chunk c starts at rank c + 1 and goes once round the ring: its sum
///   runs over ranks c + 1, c + 2, ..., c (mod R), and every hop rounds to the model's type. Then
///   the sums are gathered, which rounds nothing. One channel, one loop, chunks not padded.
///   Source: NCCL `src/device/all_reduce.h`, runRing: rank r first sends chunk r - 1, to r + 1.
/// f32: in rank order in f32, rounded once to the model's type, as one-shot kernels do.
///   Source: vLLM `csrc/custom_all_reduce.cuh`, packed_reduce.
enum class ReduceOrder : std::uint8_t { rank, ring, f32 };
[[nodiscard]] constexpr std::string_view name(ReduceOrder o) {
  constexpr std::array<std::string_view, 3> names{"rank", "ring", "f32"};
  return names[static_cast<std::size_t>(o)];
}
[[nodiscard]] constexpr std::optional<ReduceOrder> reduce_order_named(std::string_view text) {
  for (const ReduceOrder o : {ReduceOrder::rank, ReduceOrder::ring, ReduceOrder::f32})
    if (text == name(o)) return o;
  return std::nullopt;
}

}  // namespace tpsim
