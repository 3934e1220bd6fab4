// SPDX-License-Identifier: MIT
#include "sim/explain.hpp"

namespace tpsim::cli {

const std::vector<CheckText>& check_texts() {
  static const std::vector<CheckText> texts{
      {"divide", "the shape can be cut over the ranks",
       "Query heads, merged parts and cut dimensions have to divide by tp, each part by itself: "
       "parts of 3 and 5 rows do not go over 2 ranks although their sum does. KV heads divide by "
       "tp, or tp divides by them: then tp / kv_heads neighbouring ranks hold the same head. A "
       "shape that breaks this is refused before anything runs, with every broken rule and the "
       "legal tp."},
      {"cover", "every element is on the declared number of ranks",
       "Counts, for every element of every checkpoint tensor, on how many ranks the weight_loader "
       "put it: one for a cut tensor, tp for a replicated one, tp / kv_heads for shared kv heads. "
       "It also finds parameter rows that nothing was loaded into, and rows that were loaded "
       "twice. Counts alone are weak: k and v exchanged have perfect counts. 'order' sees that."},
      {"order", "every element is at its own place",
       "Compares the copies that the weight_loader really made with the declared cut, row by row "
       "and column by column, in order. The declaration is made from a layout expression and a cut "
       "rule. It shares no code with the loader but the evaluation of layout expressions, which "
       "the tests hold to explicit row formulas."},
      {"heads", "every query head meets the kv head that it reads",
       "Query head h of the model reads kv head h / (heads / kv_heads). A rank pairs its local "
       "heads in the same way, so the heads that the loader gave it have to fit each other. Judged "
       "on what the rank holds, whatever was declared. Also finds a cut in the middle of a head."},
      {"partners", "parameters that meet hold the same entries",
       "The rows of gate and of up and the columns of down have to be the same channels on each "
       "rank; a bias has to follow the rows of its weight; the columns of an input those of the "
       "weight that it meets. Two parts that are each cut evenly can still be cut differently."},
      {"state", "no collective is missing, doubled or misplaced",
       "Follows every activation without numbers: which columns of which logical value a rank has, "
       "and which part of a contraction it has summed so far. At the end every rank must have the "
       "value that full() has, whole: a missing all_reduce leaves a partial sum, a doubled one "
       "counts tp times, a bias on every rank counts tp times, gate and up exchanged make another "
       "value."},
      {"collectives", "all ranks issue the same collectives",
       "Operation, reduction, shape, type, root and group have to agree on all ranks of a group, "
       "in order, and no rank may return while others wait: NCCL would hang there. The finding "
       "lists every rank with its operation and source line."},
      {"exact", "equal to full() in exact arithmetic",
       "Runs the layer over the integers modulo 2^61 - 1 with random weights and inputs, and its "
       "specification full() beside it. There is no rounding: they are equal or not. Nonlinear "
       "functions are keyed hashes, known only to give equal results for equal arguments. A fault "
       "that is visible in this arithmetic passes with the printed probability at most "
       "(Schwartz-Zippel, taking the hash for a random function); seeds are added until it is "
       "below 2^-60. Not covered: rounding, overflow, anything that depends on the order of "
       "floating-point sums, identities of the nonlinear functions themselves, and faults shared "
       "by layer and full()."},
      {"replicas", "ranks that must hold the same result do",
       "Outputs declared on several ranks (after an all_reduce, or of a shared kv head) are "
       "compared bit for bit, in the exact and in the numeric reading."},
      {"integer", "bit-equal on integer data",
       "With small integers whose partial sums are all representable, every order of summation "
       "gives the same bits, on any machine, GPU and collective library. So any difference is a "
       "fault, with no tolerance. Layers with an activation leave the integers and are skipped."},
      {"rounding", "within the derived rounding bound",
       "Each operation carries a bound on its distance from exact arithmetic, derived from what it "
       "did: block sums, stores, hops of a collective, biases. The result has to lie within it. "
       "The largest ratio shows how sharp the bound is; --verbose prints the smallest fault that "
       "it can see. It is for faults of precision: no sound bf16 tolerance sees two exchanged "
       "channels of a wide layer."},
      {"names", "every name means one thing: a rule of requests, not a reported check",
       "Parts, shard ids, tensors and layout labels have to name something that exists, once. A "
       "request that breaks this is refused before anything runs; no report has a row for it."},
  };
  return texts;
}

}  // namespace tpsim::cli
