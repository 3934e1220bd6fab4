// SPDX-License-Identifier: MIT
// The parts of the static reading: fractions, coverage, parameters, values; whole layers by id.
#include <rapidcheck.h>

#include <tpsim/layers/mlp.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>

using namespace tpsim;
using namespace tpsim::test;

namespace {

using Tensor = SymbolicTensor;

std::vector<FullTensor> mlp_tensors(const MlpShape& s, bool bias = false) {
  std::vector<FullTensor> out{full_tensor("gate_proj.weight", {s.intermediate, s.hidden}),
                              full_tensor("up_proj.weight", {s.intermediate, s.hidden}),
                              full_tensor("down_proj.weight", {s.hidden, s.intermediate})};
  if (bias) {
    out.push_back(full_tensor("gate_proj.bias", Shape(s.intermediate)));
    out.push_back(full_tensor("up_proj.bias", Shape(s.intermediate)));
    out.push_back(full_tensor("down_proj.bias", Shape(s.hidden)));
  }
  return out;
}
Tensor mlp_rank(SymbolicBackend& b, Communicator& comm, const MlpShape& s, bool swapped,
                Index tokens) {
  const auto t = mlp_tensors(s, s.bias);
  GatedMLP<SymbolicBackend> mlp(b, comm, s);
  const auto load = [&](auto& gate_up, std::size_t first) {
    mlp.gate_up_proj.weight_loader(gate_up, t[first], swapped ? "up" : "gate");
    mlp.gate_up_proj.weight_loader(gate_up, t[first + 1], swapped ? "gate" : "up");
  };
  load(mlp.gate_up_proj.weight, 0);
  mlp.down_proj.weight_loader(mlp.down_proj.weight, t[2]);
  if (s.bias) {
    load(*mlp.gate_up_proj.bias, 3);
    mlp.down_proj.weight_loader(*mlp.down_proj.bias, t[5]);
  }
  return mlp.forward(b.input("x", tokens, s.hidden));
}

}  // namespace

TEST_CASE("rational: fractions are kept in lowest terms and overflow is refused") {
  CHECK(Rational(2, -4) == Rational(-1, 2));
  CHECK(Rational(1, 3) + Rational(1, 6) == Rational(1, 2));
  CHECK(Rational(1, 3) - Rational(1, 3) == Rational(0));
  CHECK(Rational(2, 3) * Rational(9, 4) == Rational(3, 2));
  CHECK(Rational(1, 3) < Rational(1, 2));
  CHECK(Rational(6, 4).str() == "3/2");
  CHECK_THROWS_AS(Rational(1, 0), LayoutError);
  CHECK_THROWS_AS(Rational(Index{1} << 62) * Rational(4), LayoutError);
  for (Index n = 1; n < 200; ++n) {
    Rational sum;
    for (Index i = 0; i < n; ++i) sum = sum + Rational(1, n);
    CHECK(sum == Rational(1));
  }
}

TEST_CASE("coverage: a sum of random shards is complete if and only if they are a partition") {
  CHECK(rc::check("coverage counts every column", [] {
    const Index extent = *rc::gen::inRange<Index>(1, 24);
    const auto columns = static_cast<std::size_t>(extent);
    const Index ranks = *rc::gen::inRange<Index>(1, 6);
    std::vector<Index> owner =
        *rc::gen::container<std::vector<Index>>(columns, rc::gen::inRange<Index>(0, ranks));
    std::vector<Runs> shards(static_cast<std::size_t>(ranks));
    std::vector<Index> count(columns, 1);
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t c = (i * 7) % columns;  // another order than rising where 7 fits
      const bool permuted = columns % 7 != 0;
      shards[static_cast<std::size_t>(owner[i])].append(
          {static_cast<Index>(permuted ? c : i), 1, 1});
    }
    if (*rc::gen::arbitrary<bool>()) {  // one column more, or one less
      const auto c = *rc::gen::inRange<Index>(0, extent);
      if (*rc::gen::arbitrary<bool>()) {
        shards[0].append({c, 1, 1});
        ++count[static_cast<std::size_t>(c)];
      } else {
        for (Runs& shard : shards) {
          Runs kept;
          for (Index i = 0; i < shard.size(); ++i)
            if (shard[i] != c) kept.append({shard[i], 1, 1});
          shard = kept;
        }
        count[static_cast<std::size_t>(c)] = 0;
      }
    }
    std::vector<Coverage> parts;
    for (const Runs& shard : shards) parts.push_back(Coverage::of(shard, extent));
    std::vector<const Coverage*> pointers;
    for (const Coverage& part : parts) pointers.push_back(&part);
    const Coverage sum = Coverage::sum(pointers);
    bool partition = true;
    for (std::size_t i = 0; i < columns; ++i) {
      Rational here;
      for (const Coverage::Segment& s : sum.segments())
        if (s.begin <= static_cast<Index>(i) && static_cast<Index>(i) < s.end) here = s.coef;
      RC_ASSERT(here == Rational(count[i]));
      partition = partition && count[i] == 1;
    }
    RC_TAG(partition ? "partition" : "not a partition");
    RC_ASSERT(sum.complete() == partition);
  }));
}

TEST_CASE("param: the order of copies does not matter and gaps and repeats are counted") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const FullTensor q = full_tensor("q", {8, 4}), k = full_tensor("k", {8, 4});
  SymbolicParam one = b.empty("weight", {6, 4}), two = b.empty("weight", {6, 4});
  b.copy(one, 0, 0, q, 2, 2);
  b.copy(one, 0, 2, q, 4, 2);
  b.copy(one, 0, 4, k, 0, 1);
  b.copy(two, 0, 4, k, 0, 1);
  b.copy(two, 0, 1, q, 3, 3);
  b.copy(two, 0, 0, q, 2, 1);
  REQUIRE(one.row_sources().size() == 3);
  for (const SymbolicParam& p : {one, two}) {
    const auto rows = p.row_sources();
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].tensor->name == "q");
    CHECK(rows[0].src_rows == Runs::range(2, 6));
    CHECK(rows[1].tensor->name == "k");
    CHECK(rows[2].tensor == nullptr);
    CHECK(p.pieces().size() == 2);
    CHECK(p.unwritten() == Runs::range(5, 6));
    CHECK(p.overwritten().empty());
  }
  b.copy(one, 0, 3, k, 5, 2);
  CHECK(one.overwritten() == Runs::range(3, 5));
  CHECK(one.unwritten() == Runs::range(5, 6));
  CHECK(one.row_sources()[1].src_rows == Runs::range(5, 7));
  CHECK_THROWS_AS(b.copy(one, 0, 5, k, 0, 2), LayoutError);
  CHECK(context.cost(0).weight_bytes(DType::bf16) == 2 * 2 * 24);
}

TEST_CASE("param: the last of several random copies holds") {
  CHECK(rc::check("pieces equal a matrix of tags", [] {
    constexpr Index rows = 6, cols = 5;
    SymbolicParam p("weight", {rows, cols});
    std::vector<Index> row_of(rows * cols, -1), times(rows, 0);
    const auto tensor = std::make_shared<LogicalTensor>("t", Shape(100, 100));
    const int copies = *rc::gen::inRange(0, 6);
    for (int i = 0; i < copies; ++i) {
      const Index r = *rc::gen::inRange<Index>(0, rows), c = *rc::gen::inRange<Index>(0, cols);
      const Index h = *rc::gen::inRange<Index>(1, rows - r + 1);
      const Index w = *rc::gen::inRange<Index>(1, cols - c + 1);
      const Index src = *rc::gen::inRange<Index>(0, 50), stride = *rc::gen::inRange<Index>(1, 3);
      p.record({r, c, h, w, tensor, src, c, stride});
      for (Index y = r; y < r + h; ++y)
        for (Index x = c; x < c + w; ++x) {
          Index& at = row_of[static_cast<std::size_t>(y * cols + x)];
          if (at >= 0) times[static_cast<std::size_t>(y)] = 1;
          at = src + (y - r) * stride;
        }
    }
    std::vector<Index> seen(rows * cols, -1);
    for (const Piece& piece : p.pieces())
      for (Index y = 0; y < piece.rows; ++y)
        for (Index x = 0; x < piece.cols; ++x) {
          Index& at = seen[static_cast<std::size_t>((piece.row + y) * cols + piece.col + x)];
          RC_ASSERT(at == -1);
          RC_ASSERT(piece.src_col + x == piece.col + x);
          at = piece.src_row + y * piece.src_stride;
        }
    RC_ASSERT(seen == row_of);
    Runs gaps, twice;
    for (Index y = 0; y < rows; ++y) {
      bool gap = false;
      for (Index x = 0; x < cols; ++x) gap |= row_of[static_cast<std::size_t>(y * cols + x)] < 0;
      if (gap) gaps.append({y, 1, 1});
      if (times[static_cast<std::size_t>(y)] > 0) twice.append({y, 1, 1});
    }
    RC_ASSERT(p.unwritten() == gaps);
    RC_ASSERT(p.overwritten() == twice);
  }));
}

TEST_CASE("values: equal programs have equal ids and different ones do not") {
  ValueTable v;
  const auto w = std::make_shared<LogicalTensor>("w", Shape(4, 4));
  const auto same = std::make_shared<LogicalTensor>("w", Shape(4, 4));
  const auto wide = std::make_shared<LogicalTensor>("w", Shape(8, 4));
  const ValueId x = v.input("x", 4), y = v.input("y", 4);
  CHECK(v.input("x", 4) == x);
  CHECK(x != y);
  CHECK(v.linear(x, w) == v.linear(x, same));
  CHECK(v.linear(x, w) != v.linear(x, wide));
  CHECK(v.linear(x, w) != v.linear(y, w));
  CHECK(v.mul(x, y) == v.mul(y, x));
  CHECK(v.mul(v.silu(x), y) != v.mul(x, v.silu(y)));
  CHECK(v.sum({{x, 1}, {y, 2}}, 4) == v.sum({{y, 2}, {x, 1}}, 4));
  CHECK(v.sum({{x, 1}, {y, 2}}, 4) != v.sum({{x, 2}, {y, 1}}, 4));
  CHECK(v.sum({{x, 1}}, 4) == x);
  CHECK(v.unknown("?", 4) != v.unknown("?", 4));
  CHECK(v.name(v.silu(v.linear(x, w))) == "Silu(Lin(x, w))");
  std::vector<ValueId> chain{x};
  for (int i = 0; i < 1000; ++i) chain.push_back(v.silu(chain.back()));
  const std::size_t size = v.size();
  for (std::size_t i = 0; i < 1000; ++i) CHECK(v.silu(chain[i]) == chain[i + 1]);
  CHECK(v.size() == size);
}

TEST_CASE("gated mlp: the value at every tp is the one of full and carries its degrees") {
  for (const bool bias : {false, true})
    for (const int tp : {1, 2, 3, 4, 6, 12}) {
      SymbolicContext context;
      const MlpShape s{10, 24, bias};
      const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
        return mlp_rank(b, comm, s, false, 5);
      });
      SymbolicBackend b(context, -1);
      const Tensor full = GatedMLP<SymbolicBackend>::full(b, b.input("x", 5, 10),
                                                          reference(b, mlp_tensors(s, bias)));
      INFO(messages(context));
      CHECK(context.findings().empty());
      for (const Tensor& t : out) CHECK_FALSE(compare(context, t, full));
      const std::vector<ValueId> ids{canonical(context, full)[0].value};
      const SoundnessFigures f = context.soundness(ids, 5);
      // gate is of degree 2; silu(gate) up is 4 over 1; down adds 24 of them and a weight.
      if (!bias) CHECK(f == SoundnessFigures{2 * 5 * 24, 2, (4 + 1 + 23) + 24});
      Index calls = context.cost(-1).oracle_calls;
      for (int r = 0; r < tp; ++r) calls += context.cost(r).oracle_calls;
      CHECK(calls == 2 * 5 * 24);
      CHECK(context.cost(0).flops * tp == context.cost(-1).flops);
    }
}

TEST_CASE("gated mlp: gate and up exchanged give another value at every tp") {
  for (const int tp : {1, 2, 4}) {
    SymbolicContext context;
    const MlpShape s{10, 24, false};
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      return mlp_rank(b, comm, s, true, 5);
    });
    SymbolicBackend b(context, -1);
    const Tensor full =
        GatedMLP<SymbolicBackend>::full(b, b.input("x", 5, 10), reference(b, mlp_tensors(s)));
    CHECK(compare(context, out[0], full));
  }
}

TEST_CASE("gate and up columns that differ are named where they are multiplied") {
  SymbolicContext context;
  SymbolicBackend b(context, 2);
  const auto t = mlp_tensors({4, 8, false});
  const Tensor x = b.input("x", 5, 4);
  (void)b.mul(b.silu(b.linear(x, held(b, t[0], 0, 4, 0, 4))),
              b.linear(x, held(b, t[1], 4, 4, 0, 4)));
  REQUIRE(context.findings().size() == 1);
  CHECK(context.findings()[0].check == "partners");
  CHECK(context.findings()[0].rank == 2);
  CHECK(contains(messages(context),
                 "columns [0, 4) of Silu(Lin(x, gate_proj.weight)) are "
                 "multiplied by columns [4, 8) of Lin(x, up_proj.weight)"));
}

TEST_CASE("qkv: replicated kv heads are held by several ranks and known by identity") {
  SymbolicContext context;
  const QkvShape s{6, 2, 8, 2, 0};
  const auto shards = run(context, 4, [&](SymbolicBackend& b, Communicator& comm) {
    QKVParallelLinear<SymbolicBackend> qkv(b, comm, s);
    for (const char* part : {"q", "k", "v"})
      qkv.weight_loader(
          qkv.weight,
          full_tensor(std::string(part) + "_proj.weight", {part[0] == 'q' ? 16 : 4, s.hidden}),
          part);
    return qkv.forward(b.input("x", 5, s.hidden));
  });
  CHECK(context.findings().empty());
  const auto columns = canonical(context, shards[3]);
  REQUIRE(columns.size() == 3);
  CHECK(context.name(columns[0].value) == "Lin(x, q_proj.weight)");
  CHECK(columns[0].begin == 12);
  CHECK(context.name(columns[1].value) == "Lin(x, k_proj.weight)");
  CHECK(columns[1].begin == 2);
  const Placement p = placement(context, pointers(shards));
  CHECK(p.kind == PlacementKind::sharded);
  CHECK(contains(p.text, "Lin(x, q_proj.weight) sharded over columns, each on 1 rank;"));
  CHECK(contains(p.text, "Lin(x, k_proj.weight) sharded over columns, each on 2 ranks"));
}

TEST_CASE("reduce: the maximum of equal values is the value and of others is unknown") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const Tensor x = b.input("x", 5, 4), y = b.input("y", 5, 4);
  const std::vector<const Tensor*> equal{&x, &x}, other{&x, &y};
  CHECK_FALSE(compare(context, b.reduce(Reduction::max, equal), x));
  CHECK(context.findings().empty());
  CHECK(compare(context, b.reduce(Reduction::max, other), x));
  CHECK(context.findings().size() == 1);
}

TEST_CASE("tokens: slices join again and other tokens are refused") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const Tensor x = b.input("x", 6, 4);
  const Tensor head = b.slice(x, 0, 0, 2), tail = b.slice(x, 0, 2, 4), half = b.slice(x, 0, 0, 4);
  const std::vector<const Tensor*> parts{&head, &tail}, wrong{&half, &tail};
  CHECK_FALSE(compare(context, b.concat(parts, 0), x));
  CHECK(context.findings().empty());
  (void)b.reduce(Reduction::sum, wrong);
  CHECK(contains(messages(context), "reduce of different tokens: [0, 4) and [2, 6)"));
}
