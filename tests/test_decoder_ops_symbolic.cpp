// SPDX-License-Identifier: MIT
// The static reading of norms and activations: shares of statistics, and what they may divide.
#include <functional>

#include <tpsim/backend/collectives.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>

namespace decoder_ops_symbolic_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

constexpr Index rows_of_x = 3;

/// A norm over all heads of a projection of x [3, 10]: 12 columns, which tp 2, 3 and 4 divide.
struct WideNorm {
  FullTensor proj = full_tensor("q_proj.weight", {12, 10});
  FullTensor weight = full_tensor("q_norm.weight", Shape(12));
  Index count = 12;
  double eps = 1e-6;

  [[nodiscard]] SymbolicTensor columns(SymbolicBackend& b, Index begin, Index n) const {
    return b.linear(b.input("x", rows_of_x, 10), held(b, proj, begin, n, 0, 10));
  }
  [[nodiscard]] SymbolicTensor normed(SymbolicBackend& b, const SymbolicTensor& q,
                                      const SymbolicTensor& squares, Index row) const {
    return b.mul_columns(b.rms_normalized(q, squares, count, eps),
                         held(b, weight, row, b.shape(q).cols(), 0, 1));
  }
  [[nodiscard]] SymbolicTensor full(SymbolicContext& context) const {
    SymbolicBackend b(context, -1);
    const SymbolicTensor q = columns(b, 0, 12);
    return normed(b, q, b.square_sums(q, 12), 0);
  }
};

/// The finding of a program that has one (or one on every rank), by check, tensor and cause.
const Finding& first_finding(const SymbolicContext& context) {
  REQUIRE_FALSE(context.findings().empty());
  return context.findings().front();
}
bool has_unknown(SymbolicContext& context, const SymbolicTensor& x) {
  for (const Column& c : canonical(context, x))
    if (!context.values().node(c.value).known) return true;
  return false;
}

}  // namespace

TEST_CASE("statistics: the shares of all ranks add up to full's and the norm is full's") {
  for (const int tp : {1, 2, 3, 4, 6, 12}) {
    SymbolicContext context;
    const WideNorm c;
    SymbolicBackend full(context, -1);
    const SymbolicTensor expected = c.full(context);
    const SymbolicTensor squares = full.square_sums(c.columns(full, 0, 12), 12);
    std::vector<SymbolicTensor> sums(static_cast<std::size_t>(tp));
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      const Index n = 12 / tp, begin = comm.rank() * n;
      const SymbolicTensor q = c.columns(b, begin, n);
      SymbolicTensor share = b.square_sums(q, 12);
      CHECK(b.shape(share) == Shape(rows_of_x, 1));
      CHECK(compare(context, share, squares).has_value() == (tp > 1));
      share = tp > 1 ? all_reduce(b, comm, share) : share;
      sums[static_cast<std::size_t>(comm.rank())] = share;
      return c.normed(b, q, share, begin);
    });
    require_equal(context, sums, squares);
    for (int r = 0; r < tp; ++r)
      CHECK_FALSE(compare(context, out[static_cast<std::size_t>(r)],
                          full.slice(expected, 1, r * 12 / tp, 12 / tp)));
    CHECK(placement(context, pointers(out)).kind ==
          (tp == 1 ? PlacementKind::replicated : PlacementKind::sharded));
    CHECK(context.name(canonical(context, out[0])[0].value) ==
          "Scaled(RmsNorm(Lin(x, q_proj.weight), n 12, eps 1e-06), q_norm.weight)");
  }
}

TEST_CASE("statistics: of whole groups on a rank nothing is missing, head by head") {
  for (const int tp : {1, 2, 3}) {
    SymbolicContext context;
    const WideNorm c;
    const FullTensor head = full_tensor("q_norm.weight", Shape(2));
    const auto norm = [&](SymbolicBackend& b, const SymbolicTensor& q) {
      const SymbolicTensor squares = b.square_sums(q, 2);
      CHECK(b.shape(squares).cols() == b.shape(q).cols() / 2);
      return b.mul_columns(b.rms_normalized(q, squares, 2, 1e-6), whole(b, head));
    };
    SymbolicBackend full(context, -1);
    const SymbolicTensor expected = norm(full, c.columns(full, 0, 12));
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      const Index n = 12 / tp;
      const SymbolicTensor q = norm(b, c.columns(b, comm.rank() * n, n));
      CHECK_FALSE(compare(context, q, full.slice(expected, 1, comm.rank() * n, n)));
      return all_gather(b, comm, q, 1);
    });
    require_equal(context, out, expected);
  }
}

TEST_CASE("layer norm: mean and variance of sharded columns, with a bias, are full's") {
  for (const int tp : {1, 2, 4}) {
    SymbolicContext context;
    const WideNorm c;
    const FullTensor bias = full_tensor("q_norm.bias", Shape(12));
    const auto norm = [&](SymbolicBackend& b, SymbolicTensor q, Index row, const auto& sum) {
      q = b.centered(q, sum(b.column_sums(q, 12)), 12);
      const SymbolicTensor y = c.normed(b, q, sum(b.square_sums(q, 12)), row);
      return b.add_bias(y, held(b, bias, row, b.shape(q).cols(), 0, 1));
    };
    SymbolicBackend full(context, -1);
    const SymbolicTensor expected =
        norm(full, c.columns(full, 0, 12), 0, [](const SymbolicTensor& s) { return s; });
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      const Index n = 12 / tp, begin = comm.rank() * n;
      const SymbolicTensor y = norm(b, c.columns(b, begin, n), begin, [&](const SymbolicTensor& s) {
        return tp > 1 ? all_reduce(b, comm, s) : s;
      });
      return all_gather(b, comm, y, 1);
    });
    require_equal(context, out, expected);
    CHECK(context.name(canonical(context, expected)[0].value) ==
          "(Scaled(RmsNorm(Centered(Lin(x, q_proj.weight), n 12), n 12, eps 1e-06), "
          "q_norm.weight) + q_norm.bias)");
  }
}

TEST_CASE("statistics: a missing all_reduce names what each rank has summed") {
  SymbolicContext context;
  const WideNorm c;
  const auto out = run(context, 3, [&](SymbolicBackend& b, Communicator& comm) {
    const SymbolicTensor q = c.columns(b, comm.rank() * 4, 4);
    return c.normed(b, q, b.square_sums(q, 12), comm.rank() * 4);
  });
  CHECK(context.findings().size() == 3);  // one a rank
  const Finding& f = context.findings()[1];
  CHECK(f.check == "state");
  CHECK(f.rank == 1);
  CHECK(f.tensor == "Lin(x, q_proj.weight)");
  CHECK(f.message ==
        "the statistics of Lin(x, q_proj.weight) are partial: SquareSum(Lin(x, q_proj.weight), "
        "by 12) columns [0, 1): [4, 8) of 12 summed so far");
  CHECK(f.cause == "an all_reduce of the statistics is missing before rms_normalized");
  CHECK(has_unknown(context, out[1]));

  SymbolicContext other;
  (void)run(other, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const SymbolicTensor q = c.columns(b, comm.rank() * 6, 6);
    return b.centered(q, b.column_sums(q, 12), 12);
  });
  CHECK(first_finding(other).cause == "an all_reduce of the statistics is missing before centered");
}

TEST_CASE("statistics: shared kv heads count as often as they are held, until they are scaled") {
  // 3 kv heads of 4 columns on 6 ranks: rank r holds head r / 2.
  for (const Index share : {1, 2, 3}) {
    SymbolicContext context;
    const WideNorm c{full_tensor("k_proj.weight", {12, 10}),
                     full_tensor("k_norm.weight", Shape(12))};
    const SymbolicTensor expected = c.full(context);
    SymbolicBackend full(context, -1);
    bool right = true;
    (void)run(context, 6, [&](SymbolicBackend& b, Communicator& comm) {
      const Index begin = comm.rank() / 2 * 4;
      const SymbolicTensor k = c.columns(b, begin, 4);
      const SymbolicTensor squares =
          all_reduce(b, comm, b.scale(b.square_sums(k, 12), Rational(1, share)));
      const SymbolicTensor y = c.normed(b, k, squares, begin);
      right = right && !compare(context, y, full.slice(expected, 1, begin, 4));
      return y;
    });
    CHECK(right == (share == 2));
    if (share != 1) {
      CHECK(context.findings().empty());
      continue;
    }
    const Finding& f = first_finding(context);
    CHECK(f.check == "state");
    CHECK(f.tensor == "Lin(x, k_proj.weight)");
    CHECK(f.message ==
          "columns [0, 12) of a group of Lin(x, k_proj.weight) are in the statistics of ranks 0-5: "
          "the sum counts them 2 times");
    CHECK(contains(f.cause, "copies of the same heads"));
    CHECK(contains(f.repair, "1/copies"));
  }
}

TEST_CASE("statistics: whole ones that are summed over the ranks are told as a doubled sum") {
  SymbolicContext context;
  const WideNorm c;
  (void)run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    return all_reduce(b, comm, b.square_sums(c.columns(b, 0, 12), 12));
  });
  CHECK(contains(messages(context), "is already complete before the sum over ranks 0 and 1"));
}

TEST_CASE("statistics: another count, eps, group or value is another value") {
  const auto differs =
      [](const std::function<SymbolicTensor(SymbolicBackend&, const WideNorm&)>& program) {
        SymbolicContext context;
        const WideNorm c;
        const SymbolicTensor expected = c.full(context);
        SymbolicBackend b(context, 0);
        const auto difference = compare(context, program(b, c), expected);
        CHECK(context.findings().empty());
        return difference ? difference->text : "";
      };
  const auto with = [](Index count, double eps) {
    return [=](SymbolicBackend& b, WideNorm c) {
      c.count = count;
      c.eps = eps;
      const SymbolicTensor q = c.columns(b, 0, 12);
      return c.normed(b, q, b.square_sums(q, 12), 0);
    };
  };
  CHECK(differs(with(12, 1e-6)).empty());
  CHECK(contains(differs(with(6, 1e-6)), "by 12, n 6, eps 1e-06"));
  CHECK(contains(differs(with(12, 1e-5)), "n 12, eps 1e-05"));
  CHECK(contains(differs([](SymbolicBackend& b, const WideNorm& c) {  // the rank's width
                   const SymbolicTensor q = c.columns(b, 0, 12);
                   return c.normed(b, q, b.square_sums(q, 4), 0);
                 }),
                 "by 4, n 12"));
  CHECK(contains(differs([](SymbolicBackend& b, const WideNorm& c) {  // x's own statistics
                   const SymbolicTensor q = c.columns(b, 0, 12);
                   return c.normed(b, q, b.square_sums(b.input("x", rows_of_x, 10), 10), 0);
                 }),
                 "SquareSum(x, by 10)"));
  CHECK_FALSE(differs([](SymbolicBackend& b, const WideNorm& c) {
                const SymbolicTensor q = c.columns(b, 0, 12);
                return c.normed(b, q, b.scale(b.square_sums(q, 12), Rational(1, 2)), 0);
              }).empty());
}

TEST_CASE("statistics: heads that meet the statistics of others are told") {
  SymbolicContext context;
  const WideNorm c;
  SymbolicBackend b(context, 1);
  const SymbolicTensor q = c.columns(b, 0, 12);
  const SymbolicTensor squares = b.square_sums(q, 4);
  const SymbolicTensor y = b.rms_normalized(b.slice(q, 1, 4, 4), b.slice(squares, 1, 0, 1), 4, 0);
  const Finding& f = first_finding(context);
  CHECK(f.check == "partners");
  CHECK(f.rank == 1);
  CHECK(f.message ==
        "columns [4, 8) of Lin(x, q_proj.weight) meet the statistics of columns [0, 4)");
  CHECK(has_unknown(context, y));
}

TEST_CASE("statistics: a cut inside a group is told, and columns that are no groups are refused") {
  SymbolicContext context;
  const WideNorm c;
  SymbolicBackend b(context, 0);
  (void)b.square_sums(c.columns(b, 2, 4), 4);  // half of group 0, half of group 1
  const Finding& f = first_finding(context);
  CHECK(f.check == "heads");
  CHECK(contains(f.message,
                 "square_sums over groups of 4 columns reads columns of several: "
                 "Lin(x, q_proj.weight) columns [2, 6)"));
  CHECK_THROWS_AS(b.square_sums(c.columns(b, 0, 6), 4), LayoutError);
}

TEST_CASE("statistics: a partial value has none before its all_reduce") {
  SymbolicContext context;
  const FullTensor down = full_tensor("down_proj.weight", {6, 8});
  (void)run(context, 2, [&](SymbolicBackend& b, Communicator& comm) {
    const SymbolicTensor x = b.slice(b.input("A", rows_of_x, 8), 1, 4 * comm.rank(), 4);
    const SymbolicTensor y = b.linear(x, held(b, down, 0, 6, 4 * comm.rank(), 4));
    (void)b.gelu(y);
    return b.rms_normalized(y, b.square_sums(y, 2), 2, 0);
  });
  CHECK(context.findings().size() == 6);  // gelu, square_sums and rms_normalized, on each rank
  CHECK(contains(messages(context),
                 "state: square_sums reads a partial value: Lin(A, "
                 "down_proj.weight) columns [0, 6): [0, 4) of 8 summed so far"));
  CHECK(contains(messages(context), "state: gelu reads a partial value"));
  CHECK(contains(messages(context), "state: rms_normalized reads a partial value"));
}

TEST_CASE("norm weights: cut by another rule than the columns is told with rows and columns") {
  for (const bool shared : {false, true}) {
    SymbolicContext context;
    const WideNorm c;
    const FullTensor weight = full_tensor("q_norm.weight", Shape(shared ? 4 : 12));
    const auto out = run(context, 3, [&](SymbolicBackend& b, Communicator& comm) {
      const SymbolicTensor q =
          shared ? c.columns(b, comm.rank() * 4 + 2, 2) : c.columns(b, comm.rank() * 4, 4);
      // Every rank the first rows: right on rank 0 alone, when the weight is as wide as q.
      return b.mul_columns(q, held(b, weight, 0, b.shape(q).cols(), 0, 1));
    });
    const Finding& f = first_finding(context);
    CHECK(f.check == "partners");
    CHECK(f.tensor == "q_norm.weight");
    CHECK(contains(f.cause, "cut by different rules"));
    CHECK(context.findings().size() == (shared ? 3 : 2));
    if (shared)
      CHECK(f.message ==
            "rows [0, 2) of q_norm.weight multiply columns [2, 4) of Lin(x, q_proj.weight)");
    else
      CHECK(f.message ==
            "rows [0, 4) of q_norm.weight multiply columns [4, 8) of Lin(x, q_proj.weight)");
    CHECK(has_unknown(context, out[2]));
  }
}

TEST_CASE("norm weights: nothing loaded gives an unknown value, zeros give zeros") {
  SymbolicContext context;
  const WideNorm c;
  SymbolicBackend b(context, 0);
  const SymbolicTensor q = c.columns(b, 0, 12);
  SymbolicParam w = b.empty("q_norm.weight", Shape(12));
  CHECK(has_unknown(context, b.mul_columns(q, w)));
  b.fill_zeros(w, 0, 12);
  const SymbolicTensor zero = b.mul_columns(q, w);
  CHECK_FALSE(compare(context, zero, b.scale(q, 0)));
  CHECK_FALSE(compare(context, b.gelu(zero), zero));
  CHECK_FALSE(compare(context, b.rms_normalized(zero, b.square_sums(zero, 12), 12, 1e-6), zero));
  CHECK(context.findings().empty());
}

TEST_CASE("column weights are linear: before or after the sum over the ranks, with a bias") {
  for (const int tp : {1, 2, 4}) {
    SymbolicContext context;
    const FullTensor down = full_tensor("down_proj.weight", {6, 8});
    const FullTensor bias = full_tensor("down_proj.bias", Shape(6));
    const FullTensor gain = full_tensor("gain", Shape(6));
    SymbolicBackend full(context, -1);
    const SymbolicTensor expected = full.mul_columns(
        full.add_bias(full.linear(full.input("A", rows_of_x, 8), whole(full, down)),
                      whole(full, bias)),
        whole(full, gain));
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      const Index n = 8 / tp;
      const SymbolicTensor x = b.slice(b.input("A", rows_of_x, 8), 1, n * comm.rank(), n);
      SymbolicTensor y = b.linear(x, held(b, down, 0, 6, n * comm.rank(), n));
      if (comm.rank() == 0) y = b.add_bias(y, whole(b, bias));
      y = b.mul_columns(y, whole(b, gain));
      return tp > 1 ? all_reduce(b, comm, y) : y;
    });
    require_equal(context, out, expected);
  }
}

TEST_CASE("factors: of x in its sums once and in its squares twice, of a weight in the product") {
  SymbolicContext context;
  const WideNorm c;
  SymbolicBackend b(context, 0);
  const SymbolicTensor q = c.columns(b, 0, 12), twice = b.scale(q, 2);
  CHECK_FALSE(compare(context, b.column_sums(twice, 4), b.scale(b.column_sums(q, 4), 2)));
  CHECK_FALSE(compare(context, b.square_sums(twice, 4), b.scale(b.square_sums(q, 4), 4)));
  const SymbolicParam w = whole(b, c.weight);
  const SymbolicTensor third = b.scale(b.mul_columns(q, w), Rational(1, 3));
  CHECK_FALSE(compare(context, b.mul_columns(q, b.scale(w, Rational(1, 3))), third));
  CHECK(compare(context, third, b.mul_columns(q, w)));
}

TEST_CASE("norm weights: where full() multiplies at a distance the ranks may, and it is seen") {
  SymbolicContext context;
  const WideNorm c;
  const auto part = [&](SymbolicBackend& b, Index row) {
    return b.mul_columns(c.columns(b, 4, 4), held(b, c.weight, row, 4, 0, 1));
  };
  SymbolicBackend full(context, -1), rank(context, 0);
  const SymbolicTensor apart = part(full, 0);
  CHECK_FALSE(compare(context, part(rank, 0), apart));
  CHECK(compare(context, part(rank, 4), apart));
  CHECK(context.findings().empty());
}

TEST_CASE("activations: gelu, its approximation and silu are three values; add comes unrounded") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const SymbolicTensor x = b.input("x", rows_of_x, 6);
  CHECK(compare(context, b.gelu(x), b.gelu_tanh(x)));
  CHECK(compare(context, b.gelu(x), b.silu(x)));
  CHECK_FALSE(compare(context, activate(b, Activation::gelu_tanh, x), b.gelu_tanh(x)));
  CHECK(context.name(canonical(context, b.gelu_tanh(x))[0].value) == "GeluTanh(x)");
  CHECK_FALSE(compare(context, b.rounded(b.add_unrounded(x, x)), b.add(x, x)));
}

TEST_CASE("norms carry their degrees: an oracle of the statistics, and one factor") {
  SymbolicContext context;
  const WideNorm c;
  const SymbolicTensor y = c.full(context);
  const std::vector<ValueId> ids{canonical(context, y)[0].value};
  // q is of degree 2: squares 4, times a fresh variable and a weight 4. Calls: tokens, eps.
  CHECK(context.soundness(ids, rows_of_x) == SoundnessFigures{2 * (rows_of_x + 1), 4, 4});
  CHECK(context.cost(-1).oracle_calls == rows_of_x);
}

}  // namespace decoder_ops_symbolic_tests
