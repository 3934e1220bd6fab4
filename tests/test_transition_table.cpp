// SPDX-License-Identifier: MIT
// The transition table is proven, row by row, in exact arithmetic, and the static reading follows
// it.
#include <map>
#include <set>

#include <tests/support/catch.hpp>
#include <tests/support/transition_symbolic.hpp>

namespace transition_table_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

constexpr int draws = 4 * Draw::styles;
constexpr std::array tps{2, 3, 4};

Tally tally(const Transition& row, int tp) {
  Tally t;
  for (int i = 0; i < draws; ++i) t.count(try_field(row, Draw(tp, static_cast<std::uint64_t>(i))));
  return t;
}
/// Proven at every tp?
bool proven(const Transition& row) {
  for (const int tp : tps)
    if (!proves(tally(row, tp), row.verdict)) return false;
  return true;
}

}  // namespace

TEST_CASE("transition table: every row is proven by random field tensors at tp 2 and 3 and 4") {
  std::set<TableOp> ops;
  std::map<Verdict, int> verdicts;
  for (const Transition& row : transition_table()) {
    ops.insert(row.op);
    ++verdicts[row.verdict];
    for (const int tp : tps) {
      const Tally t = tally(row, tp);
      CAPTURE(str(row), tp, t.held, t.differed, t.unformed);
      CHECK(t.draws() == draws);
      CHECK(proves(t, row.verdict));
    }
  }
  CHECK(ops.size() == static_cast<std::size_t>(TableOp::all_to_all_columns) + 1);
  CHECK(verdicts[Verdict::legal] >= 60);
  CHECK(verdicts[Verdict::wrong] >= 60);
  CHECK(verdicts[Verdict::unformed] >= 8);
}

TEST_CASE("transition table: every row with another verdict is refuted") {
  int refuted = 0;
  for (Transition row : transition_table()) {
    const Verdict right = row.verdict;
    for (const Verdict claim : {Verdict::legal, Verdict::wrong, Verdict::unformed}) {
      if (claim == right) continue;
      row.verdict = claim;
      CAPTURE(str(row));
      CHECK_FALSE(proven(row));
      ++refuted;
    }
  }
  CHECK(refuted == 2 * static_cast<int>(transition_table().size()));
}

TEST_CASE("transition table: a legal row that claims another state is refuted") {
  int refuted = 0;
  for (Transition row : transition_table()) {
    if (row.verdict != Verdict::legal) continue;
    const ShardState right = row.result;
    for (const ShardState& claim : {states::R, states::P, states::P_tp, states::R0,
                                    states::S(1, ShardMap::other), states::S(0, ShardMap::other)}) {
      // These follow from each other: R says as much as P(1/tp), R0 no less than P.
      const bool same = claim == right || (right == states::R && claim == states::P_tp) ||
                        (right == states::R0 && claim == states::P) ||
                        (right == states::root && row.a == states::R && claim == states::R) ||
                        (row.op == TableOp::contract && row.a != right);
      if (same) continue;
      row.result = claim;
      CAPTURE(str(row));
      CHECK_FALSE(proven(row));
      ++refuted;
    }
  }
  CHECK(refuted > 250);
}

}  // namespace transition_table_tests
