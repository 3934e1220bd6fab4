// SPDX-License-Identifier: MIT
// The static reading of rotary positions and attention: which head reads which, of which tokens.
#include <functional>
#include <set>

#include <tpsim/backend/collectives.hpp>

#include <tests/support/attention_heads.hpp>
#include <tests/support/catch.hpp>

namespace attention_symbolic_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

using HeadsProgram = std::function<void(Heads&)>;
/// The difference between full() and rank 1 of 2 with a variation; findings stay in the context.
std::string second_of_two(SymbolicContext& context, const Heads& model, const HeadsProgram& vary) {
  SymbolicBackend reference(context, -1);
  const SymbolicTensor expected = reference.slice(model.full(context), 1, 8, 8);
  SymbolicBackend b(context, 1);
  Heads rank = model.on(2, 1);
  vary(rank);
  const auto difference = compare(context, rank.forward(b), expected);
  return difference ? difference->text : "";
}
std::string quiet_difference(const Heads& model, const HeadsProgram& vary) {
  SymbolicContext context;
  std::string text = second_of_two(context, model, vary);
  INFO(messages(context));
  CHECK(context.findings().empty());
  return text;
}
Finding only_finding(const Heads& model, const HeadsProgram& vary) {
  SymbolicContext context;
  CHECK_FALSE(second_of_two(context, model, vary).empty());
  INFO(messages(context));
  REQUIRE(context.findings().size() == 1);
  CHECK(context.findings()[0].rank == 1);
  return context.findings()[0];
}

}  // namespace

TEST_CASE("attention: the heads of the ranks are full's heads, kv heads shared or not") {
  for (const int variant : {0, 1, 2, 3})
    for (const int tp : {1, 2, 4, 8}) {
      SymbolicContext context;
      Heads model;
      if (variant == 1) model.window = 3;
      if (variant == 2) model.alibi = true;
      if (variant == 3) model.sinks = true;
      const SymbolicTensor expected = model.full(context);
      const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
        return all_gather(b, comm, model.on(tp, comm.rank()).forward(b), 1);
      });
      require_equal(context, out, expected);
      REQUIRE(canonical(context, expected).size() == 1);
      const std::string name = context.values().name(canonical(context, expected)[0].value);
      const std::string rope = ", 4 of 4 columns half-split, theta 10000)";
      CHECK(contains(name, "Attn(Rope(Lin(x, q_proj.weight)" + rope +
                               ", Rope(Lin(x, k_proj.weight)" + rope + ", Lin(x, v_proj.weight)"));
      CHECK(contains(name, "1/sqrt(4)"));
    }
}

TEST_CASE("rope: another theta, style, scaling or position is another value") {
  const Heads model;
  CHECK(quiet_difference(model, [](Heads&) {}).empty());
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.rope.theta = 500000; }), "theta 500000"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.rope.style = RopeStyle::interleaved; }),
                 "interleaved"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.rope.rotary_dim = 2; }), "2 of 4"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.first_position = 1; }),
                 "positions 1 later"));
  const auto scaled = [&](RopeScaling scaling, double factor) {
    return quiet_difference(model, [&](Heads& h) {
      h.rope.scaling = scaling;
      h.rope.factor = factor;
      h.rope.original_positions = 64;
    });
  };
  CHECK(contains(scaled(RopeScaling::linear, 4), "linear 4"));
  CHECK(contains(scaled(RopeScaling::llama3, 8), "llama3 8 1 4 of 64"));
  CHECK(contains(scaled(RopeScaling::yarn, 2), "yarn 2 32 1"));
  // Every field of the spec that is read is part of the value, and no other.
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  std::set<ValueId> ids;
  const auto add = [&](auto... fields) {
    RopeSpec s{.rotary_dim = 4, .original_positions = 64};
    (fields(s), ...);
    ids.insert(canonical(context, b.rope(b.input("x", 2, 4), {0, 1}, 4, s))[0].value);
  };
  const auto llama = [](RopeSpec& s) { s.scaling = RopeScaling::llama3; };
  const auto yarn = [](RopeSpec& s) { s.scaling = RopeScaling::yarn; };
  add([](RopeSpec&) {}), add([](RopeSpec& s) { s.factor = 2; });
  CHECK(ids.size() == 1);
  add(llama), add(llama, [](RopeSpec& s) { s.low_freq_factor = 2; });
  add(llama, [](RopeSpec& s) { s.high_freq_factor = 8; });
  add(llama, [](RopeSpec& s) { s.original_positions = 32; });
  CHECK(ids.size() == 5);
  add(yarn), add(yarn, [](RopeSpec& s) { s.beta_fast = 16; });
  add(yarn, [](RopeSpec& s) { s.beta_slow = 2; });
  add(yarn, [](RopeSpec& s) { s.attention_factor = 2; });
  add(yarn, [](RopeSpec& s) { s.original_positions = 32; });
  CHECK(ids.size() == 10);
}

TEST_CASE("rope: a cut inside a head tears its pairs apart, which is told") {
  const Finding f = only_finding({}, [](Heads& h) { h.first_column = 14; });
  CHECK(f.check == "heads");
  CHECK(f.tensor == "Lin(x, q_proj.weight)");
  CHECK(f.message ==
        "local head 0 holds Lin(x, q_proj.weight) columns [14, 18): rotary pairs of head 3 are on "
        "different ranks");
  CHECK(f.cause == "the cut runs through a head of 4 columns");
}

TEST_CASE("rope is linear: before or after the sum over the ranks, with a bias") {
  SymbolicContext context;
  const FullTensor w = full_tensor("w", {8, 6}), bias = full_tensor("w.bias", Shape(8));
  const RopeSpec spec{.rotary_dim = 4};
  SymbolicBackend full(context, -1);
  const SymbolicTensor sum =
      full.add_bias(full.linear(full.input("A", 2, 6), whole(full, w)), whole(full, bias));
  const SymbolicTensor expected = full.rope(sum, {0, 1}, 4, spec);
  const auto out = run(context, 3, [&](SymbolicBackend& b, Communicator& comm) {
    const SymbolicTensor x = b.slice(b.input("A", 2, 6), 1, 2 * comm.rank(), 2);
    SymbolicTensor y = b.linear(x, held(b, w, 0, 8, 2 * comm.rank(), 2));
    y = b.add_bias(y, b.scale(whole(b, bias), Rational(1, 3)));
    return all_reduce(b, comm, b.rope(y, {0, 1}, 4, spec));
  });
  require_equal(context, out, expected);
}

TEST_CASE("rope: the turned part of a larger head is a head where full() has one") {
  SymbolicContext context;  // heads of 6 columns, of which the last 4 turn
  const RopeSpec spec{.rotary_dim = 4};
  const auto turn = [&](SymbolicBackend& b, Index begin) {
    return b.rope(b.slice(b.input("q", 2, 12), 1, begin, 4), {0, 1}, 4, spec);
  };
  SymbolicBackend full(context, -1), rank(context, 0);
  const SymbolicTensor expected = turn(full, 2);
  CHECK_FALSE(compare(context, turn(rank, 2), expected));
  CHECK(context.findings().empty());
  (void)turn(rank, 3);
  CHECK(context.findings().size() == 1);
  // Where the head begins is part of the value: column 3 turns with another one then.
  const SymbolicTensor other = turn(full, 1);
  CHECK(compare(context, full.slice(other, 1, 2, 1), full.slice(expected, 1, 1, 1)));
}

TEST_CASE("attention: another scale, window, number of slopes or sinks is another value") {
  Heads model;
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.scale_dim = 8; }), "1/sqrt(8)"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.window = 4; }), "window 4"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.alibi = true; }), "alibi of 8"));
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.sinks = true; }), "sinks"));
  model.alibi = true;
  CHECK(quiet_difference(model, [](Heads&) {}).empty());
  CHECK(contains(quiet_difference(model, [](Heads& h) { h.alibi_heads = 4; }), "alibi of 4"));
}

TEST_CASE("attention: a query head that meets another's kv head is told by number") {
  const Finding f = only_finding({}, [](Heads& h) { h.kv_head = 1; });  // 1 and 2, wanted 2 and 3
  CHECK(f.check == "heads");
  CHECK(f.tensor == "Rope(Lin(x, q_proj.weight), 4 of 4 columns half-split, theta 10000)");
  CHECK(
      contains(f.message, "query head 4 meets kv head 1, wanted kv head 2 of Rope(Lin(x, k_proj"));
  CHECK(contains(f.cause, "q and kv heads are cut by different rules"));
}

TEST_CASE("attention: the right kv heads in another order, and another rank's heads") {
  SymbolicContext context;
  const Heads model;
  const SymbolicTensor expected = model.full(context);
  SymbolicBackend b(context, 0);
  const Heads rank = model.on(2, 0);
  const SymbolicTensor x = rank.input(b), k = rank.key(b, x), v = rank.value(b, x);
  const SymbolicTensor second = b.slice(v, 1, 2, 2), first = b.slice(v, 1, 0, 2);
  const std::vector<const SymbolicTensor*> swapped{&second, &first};
  (void)rank.attend(b, rank.query(b, x), k, b.concat(swapped, 1));
  REQUIRE(context.findings().size() == 1);
  CHECK(context.findings()[0].message ==
        "query head 0 meets value head 1, wanted value head 0 of Lin(x, v_proj.weight)");
  // Rank 1 that computes rank 0's heads is consistent in itself; the result tells.
  SymbolicContext other;
  SymbolicBackend full(other, -1);
  const SymbolicTensor wanted = full.slice(model.full(other), 1, 8, 8);
  SymbolicBackend one(other, 1);
  const auto difference = compare(other, model.on(2, 0).forward(one), wanted);
  CHECK(other.findings().empty());
  REQUIRE(difference);
  CHECK(contains(difference->text, "columns [0, 8), expected"));
}

TEST_CASE("attention: columns that are no head of the model are told, once for all heads") {
  SymbolicContext context;
  SymbolicBackend b(context, 1);
  const SymbolicTensor q = b.input("q", 2, 16), kv = b.input("kv", 2, 16);
  const AttentionSpec spec{
      .heads = 2, .kv_heads = 2, .head_dim = 4, .v_head_dim = 4, .scale_dim = 4};
  const auto part = [&](const SymbolicTensor& x, Index begin) { return b.slice(x, 1, begin, 8); };
  (void)b.attention(part(q, 4), part(kv, 4), part(kv, 4), spec, nullptr);
  CHECK(context.findings().empty());
  (void)b.attention(part(q, 6), part(kv, 4), part(kv, 4), spec, nullptr);
  REQUIRE(context.findings().size() == 1);
  CHECK(context.findings()[0].check == "heads");
  CHECK(context.findings()[0].message ==
        "local query head 0 holds q columns [6, 10): not one head of 4 columns");
}

TEST_CASE("attention: ALiBi slopes and sinks belong to the global head") {
  Heads model;
  model.alibi = true;
  const Finding slope = only_finding(model, [](Heads& h) { h.first_slope = 0; });
  CHECK(slope.check == "heads");
  CHECK(slope.message == "query head 4 has the ALiBi slope of head 0");
  CHECK(contains(slope.repair, "global number"));
  model.alibi = false;
  model.sinks = true;
  const Finding row = only_finding(model, [](Heads& h) { h.first_sink = 0; });
  CHECK(row.check == "partners");
  CHECK(row.tensor == "sinks");
  CHECK(row.message == "row 0 of sinks is the sink of query head 4");
  CHECK(row.cause == "the sinks and the query heads are cut by different rules");
}

TEST_CASE("attention: a partial operand is told, once for all heads") {
  SymbolicContext context;
  const FullTensor w = full_tensor("v_proj.weight", {8, 10});
  const Heads model;
  (void)model.full(context);
  const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const Heads rank = model.on(1, 0);
    const SymbolicTensor x = rank.input(b), part = b.slice(x, 1, 5 * comm.rank(), 5);
    const SymbolicTensor v = b.linear(part, held(b, w, 0, 8, 5 * comm.rank(), 5));
    return rank.attend(b, rank.query(b, x), rank.key(b, x), v);
  });
  CHECK(context.findings().size() == 2);
  CHECK(
      contains(messages(context), "state: attention reads a partial value: Lin(x, v_proj.weight)"));
  CHECK_FALSE(context.values().node(canonical(context, out[0])[0].value).known);
}

TEST_CASE("attention counts its work and its degrees") {
  SymbolicContext context;
  Heads model;
  const SymbolicTensor y = model.full(context);
  // 5 tokens see 1 + 2 + 3 + 4 + 5 keys; scores of 4 columns, values of 2; projections.
  const Index seen = 15;
  CHECK(context.cost(-1).flops == 2 * seen * 8 * (4 + 2) + 2 * 5 * 10 * (32 + 16 + 8));
  CHECK(context.cost(-1).oracle_calls == seen * 8);
  // q, k of degree 3 after the rotation: scores 7. Values 2, times the weight of a key.
  const std::vector<ValueId> ids{canonical(context, y)[0].value};
  const SoundnessFigures f = context.soundness(ids, 1);
  CHECK(f.argument_degree == 7);
  CHECK(f.output_degree == 3 + 1);
  CHECK(f.oracle_calls == 2 * (8 * (5 + 2) + 1));  // at most 5 keys; slopes, sinks; the scale
  // o_proj has one denominator a head, not one a column.
  SymbolicBackend b(context, -1);
  const SymbolicTensor o = b.linear(y, whole(b, full_tensor("o_proj.weight", {10, 16})));
  const std::vector<ValueId> product{canonical(context, o)[0].value};
  CHECK(context.soundness(product, 1).output_degree == (3 + 1 + 7) + 8);

  SymbolicContext windowed;
  model.window = 2;
  (void)model.full(windowed);
  CHECK(windowed.cost(-1).oracle_calls == (1 + 2 + 2 + 2 + 2) * 8);
}

TEST_CASE("attention: sizes that do not fit are refused") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const SymbolicTensor x = b.input("x", 2, 8);
  CHECK_THROWS_AS(
      b.attention(
          x, x, x,
          AttentionSpec{.heads = 2, .kv_heads = 2, .head_dim = 4, .v_head_dim = 2, .scale_dim = 4},
          nullptr),
      LayoutError);
  CHECK_THROWS_AS(b.rope(x, {0}, 4, {.rotary_dim = 4}), LayoutError);
  CHECK_THROWS_AS(b.rope(x, {0, 1}, 3, {.rotary_dim = 2}), LayoutError);
}

}  // namespace attention_symbolic_tests
