// SPDX-License-Identifier: MIT
// The numeric reading: small integers bit for bit, and floats within a derived bound.
#pragma once

#include <tpsim/verify/integer_reading.hpp>
#include <tpsim/verify/rounding_reading.hpp>

namespace tpsim {

/// Checks `integer`, `rounding` and `replicas`. read_integers and read_rounding are its halves.
template <class = void>
[[nodiscard]] std::vector<CheckResult> read_numerically(const Subject& subject,
                                                        const NumericOptions& o = {}) {
  std::vector<CheckResult> checks = read_rounding(subject, o);
  checks.insert(checks.begin(), read_integers(subject, o));
  return checks;
}

}  // namespace tpsim
