// SPDX-License-Identifier: MIT
// The static reading against the transition table: it accepts what the field proves, and a weakened
// one is seen.
#include <map>

#include <tpsim/layers/linear.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/transition_symbolic.hpp>

namespace transition_static_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

constexpr int draws = 2 * Draw::styles;
constexpr std::array tps{2, 3, 4};

std::string text(const StaticVerdict& v) {
  std::string out;
  for (const Finding& f : v.findings) out += f.check + ": " + f.message + "\n";
  return out;
}
std::vector<ShardState> seconds(TableOp op, const std::vector<ShardState>& all) {
  using namespace states;
  switch (op) {
    case TableOp::add:
    case TableOp::mul:
    case TableOp::concat:
    case TableOp::attention:
      return all;
    case TableOp::mul_columns:
      return {R, P, S(0), S(0, shared), S(0, L2), S(0, blocks), U};
    case TableOp::add_bias:
      return {R, P, R0, S(0), S(0, shared), S(0, L2), S(0, blocks), U};
    case TableOp::linear:
      return {R, S(0), S(0, shared), S(0, blocks), S(1), S(1, shared), S(1, L2), S(1, blocks), U};
    case TableOp::lookup:
    case TableOp::lookup_unmasked:
      return {R, S(0), S(0, shared), S(0, blocks), S(0, L2), U};
    case TableOp::cut:
      return {S(0), S(1), S(1, shared), S(1, L2), S(1, blocks)};
    default:
      return {none};
  }
}
/// Row parallel, 8 inputs, 6 outputs, and all_reduce; `bias_ranks` first ranks add the bias.
StaticVerdict row_parallel(Weakening weakening, int tp, int bias_ranks, Index copies) {
  SymbolicContext context;
  context.weakening = weakening;
  const FullTensor weight = full_tensor("o_proj.weight", {6, 8});
  const FullTensor bias = full_tensor("o_proj.bias", Shape(6));
  const Index n = 8 * copies / tp;
  const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
    const Index begin = comm.rank() / copies * n;
    SymbolicTensor y =
        b.linear(b.slice(b.input("A", 3, 8), 1, begin, n), held(b, weight, 0, 6, begin, n));
    if (comm.rank() < bias_ranks) y = b.add_bias(y, whole(b, bias));
    return all_reduce(b, comm, y);
  });
  SymbolicBackend b(context, -1);
  SymbolicTensor full = b.linear(b.input("A", 3, 8), whole(b, weight));
  if (bias_ranks > 0) full = b.add_bias(full, whole(b, bias));
  bool right = context.findings().empty();
  for (const SymbolicTensor& t : out) right = right && !compare(context, t, full);
  return {right ? Happened::held : Happened::differed, context.findings(), {}};
}

}  // namespace

TEST_CASE("transition table: the static reading accepts a row exactly where the field does") {
  int compared = 0, wrong_rows = 0, named_rows = 0;
  for (const Transition& row : transition_table()) {
    int named = 0, wrong = 0;
    for (const int tp : tps)
      for (int i = 0; i < draws; ++i) {
        const Draw d(tp, static_cast<std::uint64_t>(i));
        const StaticVerdict v = try_static(row, d);
        CAPTURE(str(row), tp, i, text(v));
        CHECK(v.happened == try_field(row, d));
        ++compared;
        if (d.style != 0) continue;  // one rank may have all of an uneven map
        wrong += v.happened == Happened::differed ? 1 : 0;
        named += v.findings.empty() ? 0 : 1;
      }
    // A step that no state describes is named with its cause whenever it is wrong; a result that
    // is in another state than declared is seen by its comparison with full().
    CAPTURE(str(row), named, wrong);
    CHECK((named == 0 || named == wrong));
    wrong_rows += wrong > 0 ? 1 : 0;
    named_rows += named > 0 ? 1 : 0;
  }
  CHECK(compared == static_cast<int>(transition_table().size() * tps.size()) * draws);
  CHECK(wrong_rows >= 60);
  CHECK(named_rows >= 28);
}

TEST_CASE("transition table: the placement of a legal result is the claimed one") {
  using namespace states;
  const std::vector<std::pair<ShardState, PlacementKind>> claims{
      {R, PlacementKind::replicated},         {P, PlacementKind::partial},
      {P_tp, PlacementKind::partial},         {S(1), PlacementKind::sharded},
      {S(1, blocks), PlacementKind::sharded}, {S(1, regrouped), PlacementKind::sharded},
      {S(1, joined), PlacementKind::sharded}};
  std::map<PlacementKind, int> seen;
  for (const Transition& row : transition_table()) {
    // Partial by agreement alone, and tp copies or shares of one value, are whole on each rank.
    const bool agreed = row.op == TableOp::contract || row.op == TableOp::share ||
                        (row.op == TableOp::mul_columns && row.b == P);
    if (row.verdict != Verdict::legal || agreed || row.a == R0) continue;
    for (const auto& [state, kind] : claims)
      for (const int tp : tps) {
        if (row.result != state) continue;
        const StaticVerdict v = try_static(row, Draw(tp, 0));
        CAPTURE(str(row), tp, text(v));
        REQUIRE(v.placed);
        CHECK(*v.placed == kind);
        ++seen[kind];
      }
  }
  for (const auto& [state, kind] : claims) CHECK(seen[kind] >= 18);
}

TEST_CASE(
    "transition table: the static reading and the field agree on all combinations of states") {
  using namespace states;
  const std::vector<ShardState> all{R,
                                    P,
                                    P_tp,
                                    P_m,
                                    R0,
                                    root,
                                    S(0),
                                    S(0, blocks),
                                    S(1),
                                    S(1, blocks),
                                    S(1, shared),
                                    S(1, L2),
                                    S(1, regrouped)};
  int compared = 0, held = 0;
  for (int i = 0; i <= static_cast<int>(TableOp::all_to_all_columns); ++i) {
    const auto op = static_cast<TableOp>(i);
    for (const ShardState& a : all)
      for (const ShardState& b : seconds(op, all))
        for (const ShardState& result : all)
          for (const int tp : {2, 3}) {
            // The field orders residues from 0 up, so that max(x, 0) is x there and not elsewhere.
            if (op == TableOp::all_reduce_max && a == R0) continue;
            const Transition row{op, a, b, result, Verdict::legal, ""};
            const Draw d(tp, tp == 2 ? 0 : 5);
            const bool field = try_field(row, d) == Happened::held;
            const StaticVerdict v = try_static(row, d);
            if (field != (v.happened == Happened::held)) {
              CAPTURE(str(row), tp, text(v));
              CHECK(field == (v.happened == Happened::held));
            }
            ++compared;
            held += field ? 1 : 0;
          }
  }
  CHECK(compared > 25000);
  CHECK(held > 900);
}

TEST_CASE("partial values: a bias on rank 0 goes through a product and a factor") {
  for (const bool factor : {false, true}) {
    SymbolicContext context;
    const FullTensor a = full_tensor("a.weight", {6, 8}), bias = full_tensor("a.bias", Shape(6)),
                     next = full_tensor("next.weight", {5, 6});
    const auto rest = [&](SymbolicBackend& b, const SymbolicTensor& y) {
      return factor ? b.mul(y, b.silu(b.input("g", 3, 6))) : b.linear(y, whole(b, next));
    };
    const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
      SymbolicTensor y = b.linear(b.slice(b.input("x", 3, 8), 1, 2 * comm.rank(), 2),
                                  held(b, a, 0, 6, 2 * comm.rank(), 2));
      if (comm.rank() == 0) y = b.add_bias(y, whole(b, bias));
      return all_reduce(b, comm, rest(b, y));
    });
    SymbolicBackend b(context, -1);
    require_equal(context, out,
                  rest(b, b.add_bias(b.linear(b.input("x", 3, 8), whole(b, a)), whole(b, bias))));
  }
}

TEST_CASE("sums of different whole values are legal and of different parts are not") {
  for (const bool parts : {false, true}) {
    SymbolicContext context;
    const FullTensor e0 = full_tensor("e0.weight", {6, 8}), e1 = full_tensor("e1.weight", {6, 8});
    const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
      const FullTensor& own = comm.rank() == 0 ? e0 : e1;
      const SymbolicTensor x = b.input("x", 3, 8);
      if (!parts) return all_reduce(b, comm, b.linear(x, whole(b, own)));
      return all_reduce(b, comm, b.linear(b.slice(x, 1, 0, 4), held(b, own, 0, 6, 0, 4)));
    });
    if (parts) {
      CHECK(contains(messages(context), "the sum adds different values"));
    } else {
      SymbolicBackend b(context, -1);
      const SymbolicTensor x = b.input("x", 3, 8);
      require_equal(context, out, b.add(b.linear(x, whole(b, e0)), b.linear(x, whole(b, e1))));
    }
  }
}

TEST_CASE(
    "verifier mutant: accepting partial + replicated lets a bias on every rank pass the static "
    "reading") {
  for (const int tp : {2, 4, 8}) {
    CHECK(row_parallel(Weakening::none, tp, tp, 1).happened == Happened::differed);
    CHECK(row_parallel(Weakening::accept_partial_plus_replicated, tp, tp, 1).happened ==
          Happened::held);
    // It still refuses what other rules see, and accepts what is right.
    CHECK(row_parallel(Weakening::accept_partial_plus_replicated, tp, 1, 1).happened ==
          Happened::held);
    CHECK(row_parallel(Weakening::accept_partial_plus_replicated, tp, tp, 2).happened ==
          Happened::differed);
  }
}

TEST_CASE(
    "verifier mutant: ignoring multiplicity lets shared columns of a row parallel product pass the "
    "static reading") {
  for (const int tp : {4, 8}) {  // at tp 2 both ranks have the whole product: nothing to sum
    CHECK(row_parallel(Weakening::none, tp, 0, 2).happened == Happened::differed);
    CHECK(row_parallel(Weakening::ignore_multiplicity, tp, 0, 2).happened == Happened::held);
    CHECK(row_parallel(Weakening::ignore_multiplicity, tp, 1, 1).happened == Happened::held);
    CHECK(row_parallel(Weakening::ignore_multiplicity, tp, tp, 1).happened == Happened::differed);
  }
}

TEST_CASE("verifier mutants: each weakened rule contradicts the field on rows of the table") {
  const auto contradicted = [](Weakening weakening) {
    std::vector<std::string> rows;
    for (const Transition& row : transition_table()) {
      const Draw d(4, 0);
      if (try_static(row, d, weakening).happened != try_field(row, d)) rows.push_back(str(row));
    }
    return rows;
  };
  CHECK(contradicted(Weakening::none).empty());
  const auto bias = contradicted(Weakening::accept_partial_plus_replicated);
  CHECK(std::count(bias.begin(), bias.end(),
                   "add_bias P, R -> P (wrong): the bias is counted tp times") == 1);
  CHECK(std::count(bias.begin(), bias.end(),
                   "add P, R -> P (wrong): the whole value is counted tp times") == 1);
  const auto shared = contradicted(Weakening::ignore_multiplicity);
  CHECK(std::count(shared.begin(), shared.end(),
                   "linear S(1, L, m), S(1, L, m) -> P (wrong): every column is contracted m "
                   "times") == 1);
}

}  // namespace transition_static_tests
