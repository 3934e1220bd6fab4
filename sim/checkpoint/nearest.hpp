// SPDX-License-Identifier: MIT
// The name that was probably meant.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace tpsim::checkpoint_detail {

/// Restricted Damerau distance in bytes: insertions, deletions, changes and swaps of neighbours
/// cost 1.
[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

/// The candidate nearest to `wanted`, or "" when none is near (more than a third differs); one that
/// begins with `wanted` is near. Names of untrusted files may be long: those are left out, so that
/// the search stays fast.
[[nodiscard]] inline std::string nearest(std::string_view wanted,
                                         const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 200, most = 5000;
  std::string best;
  if (wanted.size() > longest) return best;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (std::size_t i = 0; i < std::min(candidates.size(), most); ++i) {
    const std::string& candidate = candidates[i];
    if (candidate.size() > longest) continue;
    const bool begun = wanted.size() > 1 && candidate.starts_with(wanted);
    const std::size_t distance = begun ? 1 : edit_distance(wanted, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

}  // namespace tpsim::checkpoint_detail
