// SPDX-License-Identifier: MIT
// Law: an illegal shape is refused, with every reason at once and no other.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

[[nodiscard]] inline Verdict every_illegal_shape_is_refused(const Candidate& candidate,
                                                            const Case& c) {
  const std::vector<Reason> wanted = candidate.broken(c.spec);
  try {
    (void)candidate.subject(c);
  } catch (const LayoutError& e) {
    return {static_cast<Index>(wanted.size()), compare_reasons(e.violations(), wanted)};
  }
  return {static_cast<Index>(wanted.size()), "the layer was built"};
}

}  // namespace tpsim::properties
