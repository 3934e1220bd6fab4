// SPDX-License-Identifier: MIT
// Faults of a layer's forward: biases, sums and gathers that the layer itself gets wrong.
//
// Not here, since no layer can have them yet: partial products of different tokens that are summed
// (every rank has every token), and ranks that draw different random numbers (none draws any).
#pragma once

#include <tpsim/verify/faults/fault.hpp>

namespace tpsim::detail {

[[nodiscard]] inline std::vector<Fault> forward_faults() {
  return {
      {"bias-on-every-rank",
       {"row", "mlp", "attention", "decoder"},
       "every rank adds the row-parallel bias before the sum",
       changes(LayerChange::bias_on_every_rank),
       with_bias},
      {"bias-on-no-rank",
       {"row", "mlp", "attention", "decoder"},
       "no rank adds the row-parallel bias",
       changes(LayerChange::bias_on_no_rank),
       with_bias},
      {"bias-divided-once",
       {"row", "mlp"},
       "rank 0 alone adds the row-parallel bias, divided by tp",
       changes(LayerChange::bias_divided_on_rank_zero),
       with_bias},
      {"bias-after-sum-once",
       {"row", "mlp"},
       "rank 0 alone adds the bias after the sum: the ranks' copies differ",
       changes(LayerChange::bias_after_sum_on_rank_zero),
       with_bias},
      {"residual-before-sum",
       {"row"},
       "a whole value is added to the partial products on every rank",
       changes(LayerChange::residual_in_sum),
       with_whole_input,
       with_square_weight},
      {"sum-of-whole",
       {"column", "merged", "replicated"},
       "a value that every rank has whole is summed over the ranks",
       changes(LayerChange::sum_of_whole),
       with_collective},
      {"average-for-sum",
       {"row", "mlp", "attention", "decoder"},
       "the sum over the ranks is divided by tp",
       changes(LayerChange::average)},
      {"parts-not-regrouped",
       {"merged"},
       "gathered columns stay in rank order: gate and up of each rank in turn",
       changes(LayerChange::parts_not_regrouped),
       with_collective},
  };
}

}  // namespace tpsim::detail
