// SPDX-License-Identifier: MIT
// The static reading of sums over ranks: what is right stays quiet, what is wrong is named.
#include <tpsim/layers/linear.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>

namespace symbolic_backend_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

using Tensor = SymbolicTensor;
constexpr Index tokens = 3;

// A row parallel layer, 8 inputs, 6 outputs, each step by hand so that it can go wrong.
struct RowCase {
  FullTensor weight = full_tensor("o_proj.weight", {6, 8});
  FullTensor bias = full_tensor("o_proj.bias", Shape(6));

  [[nodiscard]] Tensor partial(SymbolicBackend& b, int rank, int tp) const {
    const Index n = 8 / tp;
    const Tensor x = b.slice(b.input("A", tokens, 8), 1, rank * n, n);
    return b.linear(x, held(b, weight, 0, 6, rank * n, n));
  }
  [[nodiscard]] Tensor biased(SymbolicBackend& b, int rank, int tp) const {
    return b.add_bias(partial(b, rank, tp), whole(b, bias));
  }
  [[nodiscard]] Tensor full(SymbolicContext& context) const {
    SymbolicBackend b(context, -1);
    return b.add_bias(b.linear(b.input("A", tokens, 8), whole(b, weight)), whole(b, bias));
  }
};

}  // namespace

TEST_CASE("row parallel: partial products with a bias on rank 0 become the whole at every tp") {
  for (const int tp : {1, 2, 4, 8}) {
    SymbolicContext context;
    const RowCase c;
    std::vector<Tensor> before(static_cast<std::size_t>(tp));
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      RowParallelLinear<SymbolicBackend> layer(b, comm, 8, 6, {.bias = true});
      layer.weight_loader(layer.weight, c.weight);
      layer.weight_loader(*layer.bias, c.bias);
      before[static_cast<std::size_t>(comm.rank())] = c.partial(b, comm.rank(), tp);
      return layer.forward(b.slice(b.input("A", tokens, 8), 1, comm.rank() * 8 / tp, 8 / tp));
    });
    require_equal(context, out, c.full(context));
    CHECK(placement(context, pointers(out)).text == "replicated");
    CHECK(context.name(canonical(context, out[0])[0].value) ==
          "(Lin(A, o_proj.weight) + o_proj.bias)");
    if (tp == 2)
      CHECK(placement(context, pointers(before)).text ==
            "partial: on rank 0, columns [0, 4) of 8 of Lin(A, o_proj.weight) summed so far");
  }
}

TEST_CASE("row parallel: a bias on all ranks is named with its count") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    return all_reduce(b, comm, c.biased(b, comm.rank(), 4));
  });
  REQUIRE(context.findings().size() == 1);
  const Finding& f = context.findings()[0];
  CHECK(f.check == "state");
  CHECK(f.rank == -1);
  CHECK(f.tensor == "o_proj.bias");
  CHECK(f.message == "o_proj.bias is added on ranks 0-3: the sum counts it 4 times");
  CHECK(contains(compare(context, out[0], c.full(context))->text, "4 o_proj.bias"));
}

TEST_CASE("row parallel: a quarter of the bias on each of 4 ranks is right and half is not") {
  const RowCase c;
  for (const Index parts : {4, 2}) {
    SymbolicContext context;
    const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
      const SymbolicParam share = b.scale(whole(b, c.bias), Rational(1, parts));
      return all_reduce(b, comm, b.add_bias(c.partial(b, comm.rank(), 4), share));
    });
    CHECK(context.findings().empty() == (parts == 4));
    CHECK(compare(context, out[3], c.full(context)).has_value() == (parts != 4));
  }
}

TEST_CASE("row parallel: a doubled all_reduce is named once and the result differs") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    Tensor y = comm.rank() == 0 ? c.biased(b, 0, 4) : c.partial(b, comm.rank(), 4);
    return all_reduce(b, comm, all_reduce(b, comm, y));
  });
  REQUIRE(context.findings().size() == 1);
  CHECK(contains(messages(context), "is already complete before the sum over ranks 0-3"));
  CHECK(contains(context.findings()[0].cause, "doubled"));
  CHECK(compare(context, out[0], c.full(context)));
}

TEST_CASE("a missing all_reduce: the next column parallel layer and silu refuse the value") {
  SymbolicContext context;
  const RowCase c;
  const FullTensor next = full_tensor("next.weight", {2, 6});
  const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const Tensor y = c.partial(b, comm.rank(), 2);
    (void)b.silu(y);
    return b.linear(y, held(b, next, comm.rank(), 1, 0, 6));
  });
  CHECK(context.findings().size() == 4);  // each of two ranks, twice
  CHECK(contains(messages(context),
                 "state: silu reads a partial value: Lin(A, o_proj.weight) "
                 "columns [0, 6): [4, 8) of 8 summed so far"));
  CHECK(contains(context.findings()[0].cause, "an all_reduce is missing before silu"));
  CHECK(contains(messages(context), "the product with next.weight reads a partial value"));
  CHECK_FALSE(context.values().node(canonical(context, out[0])[0].value).known);
}

TEST_CASE("a missing all_reduce: the result of the layer is partial") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    return c.partial(b, comm.rank(), 2);
  });
  const auto difference = compare(context, out[1], c.full(context));
  REQUIRE(difference);
  CHECK(difference->column == 0);
  CHECK(contains(difference->text, "[4, 8) of 8 summed so far"));
}

TEST_CASE("an all_reduce over a sub-group leaves a partial value that names the columns") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    const auto pair = comm.split(comm.rank() / 2, comm.rank());
    return all_reduce(b, *pair, c.partial(b, comm.rank(), 4));
  });
  CHECK(context.findings().empty());
  CHECK(contains(compare(context, out[0], c.full(context))->text, "[0, 4) of 8 summed so far"));
  CHECK(contains(compare(context, out[3], c.full(context))->text, "[4, 8) of 8 summed so far"));
}

TEST_CASE("a sum with a repeated shard names the columns and the ranks that hold them") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    return all_reduce(b, comm, c.partial(b, comm.rank() == 3 ? 1 : comm.rank(), 4));
  });
  CHECK(contains(messages(context),
                 "columns [2, 4) of o_proj.weight are on ranks 1 and 3: the sum counts them 2"));
  CHECK(compare(context, out[0], c.full(context)));
}

TEST_CASE("row parallel: input columns that are not the weight's are named by rank and position") {
  SymbolicContext context;
  const RowCase c;
  (void)run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const Tensor x = b.slice(b.input("A", tokens, 8), 1, comm.rank() * 4, 4);
    return all_reduce(b, comm, b.linear(x, held(b, c.weight, 0, 6, 0, 4)));
  });
  REQUIRE(context.findings().size() == 1);  // the unknown sum is not reported again
  const Finding& f = context.findings()[0];
  CHECK(f.check == "partners");
  CHECK(f.rank == 1);
  CHECK(f.message ==
        "x holds columns [4, 8) of A, o_proj.weight columns [0, 4): at position 0 "
        "column 4 meets 0");
}

TEST_CASE("row parallel: interleaved shards that agree are whole after the sum") {
  SymbolicContext context;
  const RowCase c;
  const auto out = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    Tensor x = b.input("A", tokens, 8);
    Runs columns;
    columns.append({comm.rank(), 2, 4});
    SymbolicParam w = b.empty("weight", {6, 2});
    for (Index i = 0; i < 2; ++i) b.copy(w, 1, i, c.weight, columns[i], 1);
    return all_reduce(b, comm, b.linear(select_columns(x, columns), w));
  });
  SymbolicBackend b(context, -1);
  require_equal(context, out, b.linear(b.input("A", tokens, 8), whole(b, c.weight)));
}

TEST_CASE("two partial products and one all_reduce are the sum of both") {
  SymbolicContext context;
  const FullTensor attn = full_tensor("attn.weight", {4, 8}),
                   mlp = full_tensor("mlp.weight", {4, 6});
  const auto part = [&](SymbolicBackend& b, const char* x, const FullTensor& w, int rank) {
    const Index n = w.shape().cols() / 2;
    return b.linear(b.slice(b.input(x, tokens, 2 * n), 1, n * rank, n),
                    held(b, w, 0, 4, n * rank, n));
  };
  const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const int r = comm.rank();
    return all_reduce(b, comm, b.add(part(b, "A", attn, r), part(b, "B", mlp, r)));
  });
  SymbolicBackend b(context, -1);
  require_equal(context, out,
                b.add(b.linear(b.input("A", tokens, 8), whole(b, attn)),
                      b.linear(b.input("B", tokens, 6), whole(b, mlp))));
  CHECK(context.name(canonical(context, out[0])[0].value) ==
        "(Lin(A, attn.weight) + Lin(B, mlp.weight))");
}

TEST_CASE("a residual added before the all_reduce is right on one rank alone") {
  const RowCase c;
  for (const bool everywhere : {false, true}) {
    SymbolicContext context;
    const auto out = run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
      Tensor y = c.partial(b, comm.rank(), 2);
      if (everywhere || comm.rank() == 1) y = b.add(y, b.input("residual", tokens, 6));
      return all_reduce(b, comm, y);
    });
    CHECK(canonical(context, out[0])[0].complete);
    CHECK(contains(messages(context),
                   "residual is whole on ranks 0 and 1: the sum counts it 2 "
                   "times") == everywhere);
    CHECK(context.findings().size() == (everywhere ? 1U : 0U));
  }
}

TEST_CASE("columns that a rank holds twice count twice") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const RowCase c;
  Runs columns;
  for (const Index i : {0, 1, 1}) columns.append({i, 1, 1});
  SymbolicParam w = b.empty("weight", {6, 3});
  for (Index i = 0; i < 3; ++i) b.copy(w, 1, i, c.weight, columns[i], 1);
  const Tensor y = b.linear(select_columns(b.input("A", tokens, 8), columns), w);
  REQUIRE(y.columns.size() == 1);
  CHECK(y.columns[0].terms[0].summed.str() == "[0, 1) 2 times [1, 2) of 8");
}

TEST_CASE("rows that were never written make the result differ") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const RowCase c;
  const Tensor x = b.input("A", tokens, 8), full = b.linear(x, whole(b, c.weight));
  SymbolicParam w = b.empty("weight", {6, 8});
  for (Piece p : c.weight.pieces(0, 5, 0, 8)) w.record(p);
  const auto difference = compare(context, b.linear(x, w), full);
  REQUIRE(difference);
  CHECK(difference->column == 5);
  CHECK(contains(difference->text, "unwritten rows of o_proj.weight"));
  CHECK(context.findings().empty());
}

}  // namespace symbolic_backend_tests
