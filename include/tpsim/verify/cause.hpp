// SPDX-License-Identifier: MIT
// From what the ranks hold to the likely cause, in words.
#pragma once

#include <tpsim/verify/causes/fused.hpp>
#include <tpsim/verify/causes/missing.hpp>
#include <tpsim/verify/causes/offsets.hpp>
#include <tpsim/verify/causes/sizes.hpp>

namespace tpsim {

/// Why part k of param p on `rank` is not the declared one: the first signature that fits all
/// ranks. Source of the signatures: the reports of faults in real loaders.
[[nodiscard]] inline Cause likely_cause(const Subject& subject, const std::vector<HeldRank>& held,
                                        std::size_t p, std::size_t k, std::size_t rank) {
  const detail::RanksView view{subject, held, p};
  if (auto cause = detail::size_cause(view, rank)) return *cause;
  if (auto cause = detail::fused_cause(view)) return *cause;
  if (auto cause = detail::missing_cause(view, k, rank)) return *cause;
  if (auto cause = detail::misplaced_cause(view, k, rank)) {
    if (detail::fused_tensor(view) == nullptr || cause->cause.ends_with("exchanged")) return *cause;
    return {"the fused tensor was read in another order than it has on disk",
            "split it into its parts by its layout, cut each part, then join them per rank"};
  }
  // What is right along the dimension that is cut is wrong along the other.
  if (view.is_right_everywhere(k)) return detail::offset_cause({subject, held, p, 1 - view.dim}, k);
  return detail::offset_cause(view, k);
}

}  // namespace tpsim
