// SPDX-License-Identifier: MIT
// The verifier's own mutants: rules of a reading that a test can switch off.
#pragma once

#include <cstdint>

namespace tpsim {

/// One rule that a reading leaves out. Every value but `none` makes the verifier wrong: tests set
/// it to show which check rests on the rule. Nothing else may.
enum class Weakening : std::uint8_t {
  none,
  accept_partial_plus_replicated,  ///< a value added whole on every rank counts once in a sum
  ignore_multiplicity,             ///< a column that several ranks contract counts once in a sum
  identity_oracle,                 ///< exact: a nonlinear function is the identity
  affine_oracle,           ///< exact: it is a x + b, which commutes with averages of partial sums
  rank_keyed_oracle,       ///< exact: it is another function on every rank
  fixed_scale,             ///< exact: 1/sqrt(n) is one value, whatever n the code uses
  compare_rank_zero_only,  ///< exact: nobody looks at the other ranks' results
  zeros_for_poison,        ///< numeric: memory that nothing was loaded into is zero
  bound_without_hops,      ///< numeric: the bound leaves out the error of the collective
};

}  // namespace tpsim
