// SPDX-License-Identifier: MIT
// One random setting of the transition table: a tp, tiny shapes, and which entries each rank holds.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include <tpsim/core/random.hpp>
#include <tpsim/layout/runs.hpp>
#include <tpsim/verify/transition_table.hpp>

namespace tpsim::test {

/// The entries of one rank along a dimension, in the order in which it holds them.
using Entries = std::vector<Index>;

struct Draw {
  int tp = 2;
  std::uint64_t seed = 0;
  int style = 0;          ///< of the map L: see parts(); and of shared maps
  Index tokens, n, rows;  ///< activations [tokens, n]; linear gives [tokens, rows]

  static constexpr int styles = 6;
  /// Tokens and columns divide by tp^2: some collectives cut the blocks again.
  Draw(int ranks, std::uint64_t at)
      : tp(ranks),
        seed(mix(at + 77U * static_cast<std::uint64_t>(ranks))),
        style(static_cast<int>(at % styles)),
        tokens(static_cast<Index>(ranks) * ranks * (1 + static_cast<Index>(at / 2 % 2))),
        n(static_cast<Index>(ranks) * ranks * (1 + static_cast<Index>(at / 3 % 2))),
        rows(n + ranks) {}

  [[nodiscard]] Index random(std::uint64_t what, Index below) const {
    return static_cast<Index>(mix(seed ^ mix(what)) % static_cast<std::uint64_t>(below));
  }
  /// How many ranks hold an entry of a shared map: 2 of neighbours, or of tp 4; else all.
  [[nodiscard]] Index copies() const { return style % 2 == 0 || tp == 4 ? 2 : tp; }
  /// L of rank r: 0 blocks, 1 strided, 2 uneven blocks, 3 uneven and the last rank empty, 4 and 5
  /// random owners, in random order.
  [[nodiscard]] std::vector<Entries> parts(ShardMap map, Index extent) const {
    const auto ranks = static_cast<std::size_t>(tp);
    std::vector<Entries> out(ranks);
    const Index block = extent / tp;
    // An extent that does not divide by tp (after a slice) leaves its rest to the last rank.
    const auto give = [&](Index owner, Index entry) {
      out[static_cast<std::size_t>(std::min<Index>(owner, tp - 1))].push_back(entry);
    };
    switch (map) {
      case ShardMap::any:
        own_parts(extent, give);
        if (style >= 4)
          for (Entries& e : out)
            std::rotate(e.begin(), e.begin() + (e.size() > 1 ? 1 : 0), e.end());
        break;
      case ShardMap::other:
        out = parts(ShardMap::any, extent);
        for (Entries& e : out)
          for (Index& i : e) i = (i + 1) % extent;
        break;
      case ShardMap::blocks:
        for (Index i = 0; i < extent; ++i) give(i / block, i);
        break;
      case ShardMap::shuffled:  // strided, or blocks with ranks rotated
        for (Index i = 0; i < extent; ++i)
          give(style % 2 == 0 && block > 1 ? i % tp : (i / block + 1) % tp, i);
        break;
      case ShardMap::shared:
        for (Index r = 0; r < tp; ++r)
          for (Index k = 0; k < extent; ++k)
            if (style % 2 == 0 ? (k / block == r || k / block == (r + 1) % tp)  // neighbours
                               : k / (extent * copies() / tp) == r / copies())  // kv replication
              give(r, k);
        break;
      case ShardMap::regrouped:
        for (Index r = 0; r < tp; ++r)
          for (Index b = 0; b < tp; ++b)
            for (Index i = 0; i < block / tp; ++i) give(r, b * block + r * (block / tp) + i);
        break;
      case ShardMap::joined: {
        const std::vector<Entries> half = parts(ShardMap::any, extent / 2);
        for (std::size_t r = 0; r < ranks; ++r) {
          out[r] = half[r];
          for (const Index i : half[r]) out[r].push_back(extent / 2 + i);
        }
        break;
      }
    }
    return out;
  }
  [[nodiscard]] Entries part(const ShardState& state, Index extent, int rank) const {
    return parts(state.map, extent)[static_cast<std::size_t>(rank)];
  }

 private:
  template <class Give>
  void own_parts(Index extent, Give give) const {
    const Index block = extent / tp;
    for (Index i = 0; i < extent; ++i) {
      if (style == 0) give(i / block, i);
      if (style == 1) give(i % tp, i);
      if (style == 2) give(i == 0 ? 0 : std::min<Index>(tp - 1, 1 + i * (tp - 1) / extent), i);
      if (style == 3) give(i * std::max(1, tp - 1) / extent, i);
      if (style >= 4) give(random(static_cast<std::uint64_t>(1000 * extent + i), tp), i);
    }
  }
};

}  // namespace tpsim::test
