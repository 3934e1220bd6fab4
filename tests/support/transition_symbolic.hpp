// SPDX-License-Identifier: MIT
// The transition table in the static reading: the same states without numbers.
#pragma once

#include <tests/support/transition_field.hpp>

namespace tpsim::test {

/// A row on one draw: what the static reading made of it.
struct StaticVerdict {
  Happened happened = Happened::unformed;
  std::vector<Finding> findings;
  std::optional<PlacementKind> placed;  ///< of the results, once they exist
};

/// Operand `name` ("a", "b") whole: an input, or for partial states a product.
[[nodiscard]] inline SymbolicTensor logical(SymbolicBackend& b, const std::string& name,
                                            const ShardState& state, const Draw& d) {
  if (state.kind != StateKind::partial) return b.input(name, d.tokens, d.n);
  const FullTensor weight = full_tensor(name + ".weight", {d.n, 2 * d.tp});
  return b.linear(b.input(name, d.tokens, 2 * d.tp), loaded(b, weight));
}
/// What a rank holds of it. A partial value is a row parallel product, times 1/c.
[[nodiscard]] inline SymbolicTensor held_operand(SymbolicBackend& b, const std::string& name,
                                                 const ShardState& state, const Draw& d) {
  const int rank = b.tp_rank();
  const SymbolicTensor x = logical(b, name, state, d);
  switch (state.kind) {
    case StateKind::sharded:
      return select(b, x, state.dim, d.part(state, b.shape(x).dim(state.dim), rank));
    case StateKind::on_rank0:
      return b.scale(x, rank == 0 ? 1 : 0);
    case StateKind::root_only:
      return rank == 0 ? x : b.input("unset on rank " + std::to_string(rank), d.tokens, d.n);
    case StateKind::partial: {
      const Entries columns{2 * rank, 2 * rank + 1};
      const SymbolicTensor input = b.input(name, d.tokens, 2 * d.tp);
      const FullTensor weight = full_tensor(name + ".weight", {d.n, 2 * d.tp});
      const Rational c = factor(state, d);
      return b.scale(b.linear(select(b, input, 1, columns), loaded(b, weight, 1, columns)),
                     Rational(c.den(), c.num()));
    }
    default:
      return x;
  }
}

/// Is a rank's tensor what the state says of x? A partial one has been summed before.
[[nodiscard]] inline bool denotes(SymbolicBackend& b, const ShardState& state, const Draw& d,
                                  const SymbolicTensor& rank_tensor, const SymbolicTensor& x) {
  const int rank = b.tp_rank();
  SymbolicTensor expected = x;
  if (state.kind == StateKind::root_only && rank != 0) return true;
  if (state.kind == StateKind::on_rank0 && rank != 0) expected = b.scale(x, 0);
  if (state.kind == StateKind::sharded)
    expected = select(b, x, state.dim, d.part(state, b.shape(x).dim(state.dim), rank));
  return !compare(b.context(), rank_tensor, expected);
}

[[nodiscard]] inline StaticVerdict try_static(const Transition& row, const Draw& d,
                                              Weakening weakening = Weakening::none) {
  SymbolicContext context;
  context.weakening = weakening;
  SymbolicBackend full(context, -1);
  const SymbolicTensor x =
      full_step(full, row, d, logical(full, "a", row.a, d), logical(full, "b", row.b, d));
  StaticVerdict verdict;
  std::vector<SymbolicTensor> out(static_cast<std::size_t>(d.tp));
  bool right = true;
  try {
    VirtualRanks world{d.tp};
    world.run([&](Communicator& comm) {
      SymbolicBackend b(context, comm.rank());
      SymbolicTensor y =
          rank_step(b, comm, row, d, held_operand(b, "a", row.a, d), held_operand(b, "b", row.b, d),
                    held_parameter(b, row, d, comm.rank()));
      out[static_cast<std::size_t>(comm.rank())] = y;
      if (row.result.kind == StateKind::partial)
        y = all_reduce(b, comm, b.scale(y, factor(row.result, d)));
      right = denotes(b, row.result, d, y, x) && right;
    });
  } catch (const LayoutError&) {  // also a CollectiveMismatch
    return verdict;
  }
  verdict.findings = context.findings();
  verdict.happened = right && verdict.findings.empty() ? Happened::held : Happened::differed;
  verdict.placed = placement(context, pointers(out)).kind;
  return verdict;
}

}  // namespace tpsim::test
