// SPDX-License-Identifier: MIT
// How the ranks may share a tensor, and a claim about what an operation makes of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tpsim {

/// What the tensors that the ranks hold say about the logical value X.
enum class StateKind : std::uint8_t {
  none,        ///< no such operand
  replicated,  ///< X on every rank
  sharded,     ///< rank r holds the entries L_r of X along one dimension
  partial,     ///< X = c * sum over ranks
  on_rank0,    ///< X on rank 0, zeros elsewhere: a partial in disguise
  root_only,   ///< X on rank 0; the other ranks hold nothing of it
  unwritten,   ///< a parameter that nothing was loaded into
};
/// Which entries the ranks hold. A map is drawn once for one extent: equal names are equal maps.
enum class ShardMap : std::uint8_t {
  any,        ///< L: every entry on one rank, parts of any size and order
  other,      ///< L': parts of the sizes of L, other entries
  blocks,     ///< equal blocks in rank order
  shuffled,   ///< equal parts that do not join to the identity
  shared,     ///< every entry on m > 1 ranks, as shared kv heads are
  regrouped,  ///< part r of each block of `blocks`
  joined,     ///< L of each of two tensors side by side
};
/// c of a partial: the value is c times the sum.
enum class SumFactor : std::uint8_t { one, per_rank /* 1/tp */, per_copy /* 1/m */ };

struct ShardState {
  StateKind kind = StateKind::none;
  int dim = -1;  ///< of sharded: of activations 0 is tokens, of weights the output rows
  ShardMap map = ShardMap::any;
  SumFactor factor = SumFactor::one;
  friend constexpr bool operator==(const ShardState&, const ShardState&) = default;
};

enum class TableOp : std::uint8_t {
  add,
  residual_add,  ///< add, where the program goes on with the result as an activation
  add_bias,
  mul,
  scale,  ///< times a number
  share,  ///< times 1/tp, so that the sum over the ranks is the value
  linear,
  silu,           ///< stands for every nonlinear function of one element; silu(0) = 0
  mul_columns,    ///< times a weight of one dimension
  norm,           ///< over all columns, by the statistics of those that the rank has
  norm_exchange,  ///< the same, the statistics summed over the ranks
  rope,           ///< heads turned by the positions of their tokens
  attention,      ///< query heads `a` over kv heads `b`, one each, of one sequence
  lookup,         ///< rows of a table by token id, zeros where the mask (the declared rows) says so
  lookup_unmasked,  ///< the same without the zeros: ids that are not the rank's read its first row
  slice,            ///< the same columns on all ranks
  cut,              ///< each rank keeps its own part; `b` is the rule, no operand
  concat,           ///< of two tensors, columns side by side
  contract,         ///< none: the value is declared to be in the result's state
  all_reduce,
  all_reduce_max,
  all_gather_columns,
  all_gather_tokens,
  gather_columns,  ///< to rank 0
  reduce_scatter_columns,
  reduce_scatter_tokens,
  broadcast,           ///< from rank 0
  all_to_all_columns,  ///< of column shards
};
[[nodiscard]] constexpr std::string_view name(TableOp op) {
  constexpr std::array<std::string_view, 28> names{"add",
                                                   "residual add",
                                                   "add_bias",
                                                   "mul",
                                                   "scale",
                                                   "scale by 1/tp",
                                                   "linear",
                                                   "silu",
                                                   "mul_columns",
                                                   "norm",
                                                   "norm, statistics summed",
                                                   "rope",
                                                   "attention",
                                                   "lookup",
                                                   "lookup unmasked",
                                                   "slice",
                                                   "cut by rank",
                                                   "concat",
                                                   "declared as",
                                                   "all_reduce",
                                                   "all_reduce max",
                                                   "all_gather columns",
                                                   "all_gather tokens",
                                                   "gather",
                                                   "reduce_scatter columns",
                                                   "reduce_scatter tokens",
                                                   "broadcast",
                                                   "all_to_all"};
  return names[static_cast<std::size_t>(op)];
}

enum class Verdict : std::uint8_t {
  legal,     ///< always: the result is in the state, of the operation on the logical values
  wrong,     ///< runs, and there are values for which it is not
  unformed,  ///< never runs: the shapes do not fit, or a collective refuses them
};

/// The claim that `op`, on operands in these states, gives `result`; and whether that is so.
struct Transition {
  TableOp op;
  ShardState a, b, result;
  Verdict verdict;
  const char* why;
  const char* repair = "";  ///< of a wrong one: the step that would make it right; may be empty
};

namespace states {
inline constexpr ShardState none{}, R{StateKind::replicated}, P{StateKind::partial},
    R0{StateKind::on_rank0}, root{StateKind::root_only}, U{StateKind::unwritten},
    P_tp{StateKind::partial, -1, ShardMap::any, SumFactor::per_rank},
    P_m{StateKind::partial, -1, ShardMap::any, SumFactor::per_copy};
[[nodiscard]] constexpr ShardState S(int dim, ShardMap map = ShardMap::any) {
  return {StateKind::sharded, dim, map};
}
inline constexpr ShardMap L = ShardMap::any, L2 = ShardMap::other, blocks = ShardMap::blocks,
                          shuffled = ShardMap::shuffled, shared = ShardMap::shared,
                          regrouped = ShardMap::regrouped, joined = ShardMap::joined;
}  // namespace states

/// "P", "S(1, L)", "R0": as tables and messages write a state.
[[nodiscard]] inline std::string str(const ShardState& s) {
  constexpr std::array<std::string_view, 7> maps{"L",    "L'",        "blocks", "shuffled",
                                                 "L, m", "regrouped", "L|L"};
  switch (s.kind) {
    case StateKind::none:
      return "";
    case StateKind::replicated:
      return "R";
    case StateKind::sharded:
      return "S(" + std::to_string(s.dim) + ", " +
             std::string(maps[static_cast<std::size_t>(s.map)]) + ")";
    case StateKind::partial:
      return s.factor == SumFactor::one        ? "P"
             : s.factor == SumFactor::per_rank ? "P(1/tp)"
                                               : "P(1/m)";
    case StateKind::on_rank0:
      return "R0";
    case StateKind::root_only:
      return "root";
    case StateKind::unwritten:
      return "U";
  }
  return "";
}
/// "add P, R -> P (wrong): the whole value is counted tp times"
[[nodiscard]] inline std::string str(const Transition& row) {
  constexpr std::array<std::string_view, 3> verdicts{"legal", "wrong", "unformed"};
  return std::string(name(row.op)) + " " + str(row.a) +
         (row.b.kind == StateKind::none ? "" : ", " + str(row.b)) + " -> " + str(row.result) +
         " (" + std::string(verdicts[static_cast<std::size_t>(row.verdict)]) + "): " + row.why;
}

}  // namespace tpsim
