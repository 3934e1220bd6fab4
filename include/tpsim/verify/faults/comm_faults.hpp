// SPDX-License-Identifier: MIT
// Faults of collectives: left out, repeated, in the wrong group or order.
#pragma once

#include <tpsim/verify/faults/fault.hpp>
#include <tpsim/verify/faults/faulty_comm.hpp>
#include <tpsim/verify/faults/rounded_sum.hpp>

namespace tpsim::detail {

[[nodiscard]] inline std::vector<Fault> comm_faults() {
  return {
      {"missing-all-reduce",
       {"row", "mlp", "embedding", "attention", "decoder"},
       "the partial products are never summed",
       talks_through<RepeatedAllReduce>(0)},
      {"doubled-all-reduce",
       {"row", "mlp", "embedding", "attention", "decoder"},
       "the partial products are summed twice",
       talks_through<RepeatedAllReduce>(2)},
      {"sub-group-all-reduce",
       {"row", "mlp", "attention", "decoder"},
       "the sum runs over one half of the ranks only",
       talks_through<InOtherGroup>(CollectiveOp::all_reduce, half_of_ranks)},
      {"wrong-group-all-reduce",
       {"row", "mlp", "attention", "decoder"},
       "the sum runs over the even or the odd ranks only",
       talks_through<InOtherGroup>(CollectiveOp::all_reduce, every_second_rank)},
      {"max-for-sum",
       {"row", "mlp", "attention", "decoder"},
       "the ranks take the maximum of their partial products",
       talks_through<MaximumForSum>()},
      {"gather-reversed",
       {"column", "merged"},
       "the gather joins the ranks' columns from the last rank to the first",
       talks_through<InOtherGroup>(CollectiveOp::all_gather, reversed_ranks),
       with_collective},
      {"skipped-collective",
       {"row", "mlp", "column"},
       "the last rank leaves its collective out",
       talks_through<OddLastRank>(OddLastRank::Does::skips),
       with_collective},
      {"added-collective",
       {"row", "mlp", "column"},
       "the last rank calls its collective once more",
       talks_through<OddLastRank>(OddLastRank::Does::repeats),
       with_collective},
      {"reordered-collectives",
       {"row", "mlp", "column"},
       "the last rank calls two collectives in the other order",
       talks_through<OddLastRank>(OddLastRank::Does::exchanges),
       with_collective},
      {"bf16-sum",
       {"row", "mlp"},
       "partial products are sent as bf16 whatever their type is",
       talks_through<RoundedSum>()},
  };
}

}  // namespace tpsim::detail
