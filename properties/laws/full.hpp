// SPDX-License-Identifier: MIT
// Laws: the ranks together compute full(), in four readings.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Every activation is replicated, sharded or complete as the next operation needs, and the result
/// is full()'s value.
[[nodiscard]] inline Verdict every_value_is_in_its_state(const Candidate& candidate,
                                                         const Case& c) {
  return verdict_of(read_statically(*candidate.make(c.spec)).checks, {"state", "collectives"});
}

[[nodiscard]] inline Verdict equals_full_in_the_field(const Candidate& candidate, const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.make(c.spec);
  return verdict_of(read_exactly(*subject, read_statically(*subject).soundness, {.seed = c.seed}),
                    {"exact", "replicas"});
}

/// Says nothing about a layer with a nonlinear function.
[[nodiscard]] inline Verdict equals_full_bit_for_bit_on_integers(const Candidate& candidate,
                                                                 const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.make(c.spec);
  return verdict_of(read_numerically(*subject, {c.dtype, c.seed}), {"integer"});
}

[[nodiscard]] inline Verdict equals_full_within_the_bound(const Candidate& candidate,
                                                          const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.make(c.spec);
  return verdict_of(read_numerically(*subject, {c.dtype, c.seed}), {"rounding", "replicas"});
}

}  // namespace tpsim::properties
