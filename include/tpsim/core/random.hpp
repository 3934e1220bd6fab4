// SPDX-License-Identifier: MIT
// Position-addressed random numbers: the value of an element depends on the seed, the tensor's
// name and the element's canonical place alone, so that every rank can make its own part.
#pragma once

#include <cstdint>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// FNV-1a over the bytes of a name.
[[nodiscard]] constexpr std::uint64_t hash_name(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

/// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, OOPSLA 2014): a bijection in which each input bit changes half of the output.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Key of one tensor under one seed.
[[nodiscard]] constexpr std::uint64_t tensor_key(std::uint64_t seed, std::uint64_t name_hash) {
  return mix(mix(seed + 0x9e3779b97f4a7c15U) ^ name_hash);
}

/// Key of one row of that tensor; `at` below walks its columns.
[[nodiscard]] constexpr std::uint64_t row_key(std::uint64_t tensor, Index row) {
  return mix(tensor + 0xd1342543de82ef95U * (static_cast<std::uint64_t>(row) + 1));
}

/// 64 random bits for column `col` of the row: one counter step and one finaliser.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t row, Index col) {
  return mix(row + 0x9e3779b97f4a7c15U * (static_cast<std::uint64_t>(col) + 1));
}

}  // namespace tpsim
