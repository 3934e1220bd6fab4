// SPDX-License-Identifier: MIT
// The name that was probably meant.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::checkpoint_detail {

/// Levenshtein distance in bytes.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// The candidate nearest to `wanted`, or "" when none is near (more than a third differs). Names
/// of untrusted files may be long: those are left out, so that the search stays fast.
[[nodiscard]] inline std::string nearest(std::string_view wanted,
                                         const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 200, most = 5000;
  std::string best;
  std::size_t best_distance = wanted.size() / 3 + 1;
  if (wanted.size() > longest) return best;
  for (std::size_t i = 0; i < std::min(candidates.size(), most); ++i) {
    const std::string& candidate = candidates[i];
    if (candidate.size() > longest) continue;
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace tpsim::checkpoint_detail
