// SPDX-License-Identifier: MIT
// The parts of the static reading: fractions, coverage, parameters, values, joins.
#include <algorithm>

#include <rapidcheck.h>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>

namespace symbolic_values_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

using Tensor = SymbolicTensor;

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
  std::vector<ValueId> products;  // enough of them to meet in the table
  for (int i = 0; i < 500; ++i)
    products.push_back(
        v.linear(x, std::make_shared<LogicalTensor>("w" + std::to_string(i), Shape(4, 4))));
  std::sort(products.begin(), products.end());
  CHECK(std::adjacent_find(products.begin(), products.end()) == products.end());
  std::vector<ValueId> chain{x};
  for (int i = 0; i < 1000; ++i) chain.push_back(v.silu(chain.back()));
  const std::size_t size = v.size();
  for (std::size_t i = 0; i < 1000; ++i) CHECK(v.silu(chain[i]) == chain[i + 1]);
  CHECK(v.size() == size);
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
  CHECK(contains(messages(context), "add of different tokens: [0, 4) and [2, 6)"));
}

TEST_CASE("operands of sizes that do not fit throw") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const Tensor x = b.input("x", 5, 4);
  CHECK_THROWS_AS(b.linear(x, b.empty("weight", {2, 5})), LayoutError);
  CHECK_THROWS_AS(b.mul(x, b.input("y", 5, 5)), LayoutError);
  CHECK_THROWS_AS(b.slice(x, 1, 2, 3), LayoutError);
  CHECK_THROWS_AS(b.slice(x, 0, -1, 2), LayoutError);
}

TEST_CASE("bias: rows cut by another rule or of another weight are partners that disagree") {
  SymbolicContext context;
  SymbolicBackend b(context, 1);
  const FullTensor weight = full_tensor("q_proj.weight", {8, 4});
  const Tensor y = b.linear(b.input("x", 5, 4), held(b, weight, 4, 4, 0, 4));
  (void)b.add_bias(y, held(b, full_tensor("q_proj.bias", Shape(8)), 4, 4, 0, 1));
  CHECK(context.findings().empty());
  (void)b.add_bias(y, held(b, full_tensor("q_proj.bias", Shape(8)), 0, 4, 0, 1));
  (void)b.add_bias(y, held(b, full_tensor("k_proj.bias", Shape(8)), 4, 4, 0, 1));
  REQUIRE(context.findings().size() == 2);
  CHECK(context.findings()[0].message ==
        "rows [0, 4) of q_proj.bias are added to rows [4, 8) of "
        "q_proj.weight");
  CHECK(context.findings()[1].check == "partners");
}

TEST_CASE("columns of which different parts are summed stay apart when joined") {
  SymbolicContext context;
  SymbolicBackend b(context, 0);
  const FullTensor w = full_tensor("weight", {6, 8});
  const Tensor x = b.input("x", 5, 8);
  const Tensor top = b.linear(b.slice(x, 1, 0, 4), held(b, w, 0, 3, 0, 4));
  const Tensor bottom = b.linear(b.slice(x, 1, 4, 4), held(b, w, 3, 3, 4, 4));
  const std::vector<const Tensor*> parts{&top, &bottom};
  const Tensor joined = b.concat(parts, 1);
  REQUIRE(joined.columns.size() == 2);
  CHECK(joined.columns[1].terms[0].summed.str() == "[4, 8) of 8");
}

}  // namespace symbolic_values_tests
