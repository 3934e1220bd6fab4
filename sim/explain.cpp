// SPDX-License-Identifier: MIT
#include "sim/explain.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <tpsim/verify/transition_table.hpp>

namespace tpsim::cli {

namespace {

// The state after `op` on operands of these kinds, in either order where that is one: of its first
// legal row; "!" when all are wrong, "" when there are none.
std::string after(TableOp op, StateKind a, StateKind b) {
  const bool either = op == TableOp::add || op == TableOp::mul;
  std::string found;
  for (const Transition& row : transition_table()) {
    const bool same = row.a.kind == a && row.b.kind == b;
    const bool swapped = either && row.a.kind == b && row.b.kind == a;
    const bool plain = row.a.factor == SumFactor::one && row.b.factor == SumFactor::one;
    if (row.op != op || !plain || (!same && !swapped)) continue;
    if (row.verdict == Verdict::legal)
      return row.result.kind == StateKind::sharded ? "S" : str(row.result);
    found = "!";
  }
  return found;
}

// One line for each step; of steps with two operands, one for each first operand.
std::string state_table() {
  using enum StateKind;
  constexpr std::array kinds{replicated, sharded, partial, on_rank0};
  constexpr std::array<std::string_view, 4> letters{"R", "S", "P", "R0"};
  std::string one = fmt::format("{:<26}{:<5}{:<5}{:<5}{}\n", "step of", "R", "S", "P", "R0");
  std::string two = fmt::format("{:<26}{:<5}{:<5}{:<5}{}\n", "step with", "R", "S", "P", "R0");
  const auto line = [](const std::string& head, const std::array<std::string, 4>& cells) {
    std::string text = fmt::format("{:<26}", head);
    for (const std::string& cell : cells) text += fmt::format("{:<5}", cell);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  for (int i = 0; i <= static_cast<int>(TableOp::all_to_all_columns); ++i) {
    const auto op = static_cast<TableOp>(i);
    // No steps of their own: a declaration, a cut by the rule of its second state, an add.
    if (op == TableOp::contract || op == TableOp::cut || op == TableOp::residual_add) continue;
    std::array<std::string, 4> single;
    for (std::size_t k = 0; k < kinds.size(); ++k) single[k] = after(op, kinds[k], none);
    const auto filled = [](const std::string& cell) { return !cell.empty(); };
    if (std::any_of(single.begin(), single.end(), filled))
      one += line("  " + std::string(name(op)), single);
    for (std::size_t a = 0; a < kinds.size(); ++a) {
      std::array<std::string, 4> pair;
      for (std::size_t b = 0; b < kinds.size(); ++b) pair[b] = after(op, kinds[a], kinds[b]);
      if (std::any_of(pair.begin(), pair.end(), filled))
        two += line(fmt::format("  {} of {}", name(op), letters[a]), pair);
    }
  }
  return one + two;
}

}  // namespace

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
       "Rows that pad a vocabulary belong to no tensor and have to be what the cut says, zeros or "
       "copies of the last row, after the rank's own. "
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
       "on what the rank holds, whatever was declared. Also finds a cut in the middle of a head. "
       "In "
       "attention and decoder the heads themselves are followed: a q head has to attend to the k "
       "and v of its own kv head, rotary columns have to be whole pairs of one head, and alibi "
       "slopes and sinks are those of the head's number in the model."},
      {"partners", "parameters that meet hold the same entries",
       "The rows of gate and of up and the columns of down have to be the same channels on each "
       "rank; a bias has to follow the rows of its weight; the columns of an input those of the "
       "weight that it meets. Two parts that are each cut evenly can still be cut differently. In "
       "attention the columns of o_proj have to be the values of the rank's q heads, and a norm "
       "over "
       "all heads has to have the weights of the heads that it meets."},
      {"state", "no collective is missing, doubled or misplaced",
       "Follows every activation without numbers: which columns of which logical value a rank has, "
       "and which part of a contraction it has summed so far. At the end every rank must have the "
       "value that full() has, whole: a missing all_reduce leaves a partial sum, a doubled one "
       "counts tp times, a bias on every rank counts tp times, gate and up exchanged make another "
       "value. The ranks share a value in one of these states: R, each has it whole; S, each has "
       "its own rows or columns; P, it is the sum of what they have; R0, rank 0 has it and the "
       "others zeros, which is a P too. The table gives the state after each step. '!' is wrong "
       "whatever follows from it, and where nothing stands the step was not looked at. Parts have "
       "to fit: S with S means the same rows or columns, and a gather joins them in order. "
       "statistics are the sums and sums of squares of a norm: of whole heads, or of a replicated "
       "stream, they are whole; of columns that are cut they are partial, and have to be summed "
       "over the ranks, each head once, before the norm divides by the width of the whole model.",
       state_table()},
      {"collectives", "all ranks issue the same collectives",
       "Operation, reduction, shape, type, root and group have to agree on all ranks of a group, "
       "in order, and no rank may return while others wait: NCCL would hang there. The finding "
       "lists every rank with its operation and source line."},
      {"exact", "equal to full() in exact arithmetic",
       "Runs the layer over the integers modulo p = 2^61 - 1 with random weights and inputs, and "
       "its specification full() beside it. There is no rounding: they are equal or not. Nonlinear "
       "functions are keyed hashes of their argument, known only to give equal results for equal "
       "arguments. silu and the tanh form of gelu are made of one such hash by their definitions, "
       "gelu is x times another. A softmax is E(s) over the sum of E(s), E a hash: the maximum "
       "that "
       "programs subtract cancels, and masked scores are left out. The root of a norm and of the "
       "scale 1/sqrt(d), the slope of an alibi head by its number in the model are hashes too. cos "
       "and sin of rotary positions are random numbers of position and pair. Right code always "
       "passes. A fault that shows in this arithmetic is missed with "
       "the printed probability at most: 9/8 (N (N - 1) / 2 d + D) / p for one seed, N the calls "
       "of nonlinear functions on both sides, d and D bounds of the degrees that arguments and "
       "results have as polynomials of the random numbers (Schwartz and Zippel; the hash is taken "
       "for a "
       "random function). Degrees are counted along with the static reading; seeds are added until "
       "the product is below 2^-60, and one seed that differs proves the fault.",
       "Not covered, and who looks there:\n"
       "  rounding, overflow, the type of a sum      rounding\n"
       "  the order of floating-point sums           rounding, integer\n"
       "  a fault in the layer and in full() alike   golden outputs of another program\n"
       "  a fault that is none at this shape and tp  cover, order at full size; other tp\n"
       "  what no token of the run reads             cover, order\n"
       "  the maximum that a softmax subtracts       rounding\n"
       "  positions that the run's 8 tokens lack     rounding, with more --tokens\n"
       "  identities of nonlinear functions (sqrt(v)^2 = v, exp(-v) = 1/exp(v),\n"
       "  cos^2 + sin^2 = 1):\n"
       "  code that is right only because of one is complained of\n"
       "  code that branches on values: backends do not offer it\n"},
      {"replicas", "ranks that must hold the same result do",
       "Outputs declared on several ranks (after an all_reduce, or of a shared kv head) are "
       "compared bit for bit, in the exact and in the numeric reading."},
      {"integer", "bit-equal on integer data",
       "With small integers whose partial sums are all representable, every order of summation "
       "gives the same bits, on any machine, GPU and collective library. So any difference is a "
       "fault, with no tolerance. An activation, a norm and a softmax leave the integers, so the "
       "linear layers of an mlp, an attention and a decoder are held one by one, in the module "
       "that "
       "was loaded as always: qkv_proj, o_proj, gate_up_proj and down_proj, each on integers of "
       "its "
       "own."},
      {"rounding", "within the derived rounding bound",
       "Each operation carries a bound on its distance from exact arithmetic, derived from what it "
       "did: block sums, stores, hops of a collective, biases. The result has to lie within it. "
       "The stages of an mlp, an attention and a decoder are each fed the reference's input, so "
       "that "
       "no bound passes through an activation or a softmax and then a sum. The hops are those of "
       "--all-reduce: in rank order or round NCCL's ring, "
       "rounded to the dtype at each, or in f32 and rounded once. The largest ratio shows how "
       "sharp the bound is; --verbose prints the change that it is "
       "certain to see. It is for faults of precision: no sound bf16 tolerance sees two exchanged "
       "channels of a wide layer."},
      {"names", "every name means one thing: a rule of requests, not a reported check",
       "Parts, shard ids, tensors and layout labels have to name something that exists, once. A "
       "request that breaks this is refused before anything runs; no report has a row for it."},
  };
  return texts;
}

}  // namespace tpsim::cli
