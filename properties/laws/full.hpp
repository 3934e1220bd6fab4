// SPDX-License-Identifier: MIT
// Laws: the ranks together compute full(), in four readings.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Every activation is replicated, sharded or complete as the next operation needs, and the result
/// is full()'s value.
[[nodiscard]] inline Verdict every_value_is_in_its_state(const Candidate& candidate,
                                                         const Case& c) {
  return verdict_of(read_statically(*candidate.subject(c)).checks, {"state", "collectives"});
}

[[nodiscard]] inline Verdict equals_full_in_the_field(const Candidate& candidate, const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  return verdict_of(read_exactly(*subject, read_statically(*subject), {.seed = c.seed}),
                    {"exact", "replicas"});
}

/// A layer's parts are judged one by one only where the ranks hold them as declared.
[[nodiscard]] inline NumericOptions numeric_options(const Subject& subject, const Case& c) {
  NumericOptions o{c.dtype, c.seed};
  o.stages = !read_statically(subject).permuted;
  return o;
}

/// Of a layer with a nonlinear function, its linear parts.
[[nodiscard]] inline Verdict equals_full_bit_for_bit_on_integers(const Candidate& candidate,
                                                                 const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  return verdict_of({read_integers(*subject, numeric_options(*subject, c))}, {"integer"});
}

[[nodiscard]] inline Verdict equals_full_within_the_bound(const Candidate& candidate,
                                                          const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  return verdict_of(read_rounding(*subject, numeric_options(*subject, c)),
                    {"rounding", "replicas"});
}

}  // namespace tpsim::properties
