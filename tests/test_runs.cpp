// SPDX-License-Identifier: MIT
// Runs and FullTensor against plain lists of indices.
#include <rapidcheck.h>

#include <memory>
#include <tests/support/catch.hpp>
#include <tests/support/random_layout.hpp>
#include <tpsim/layout/full_tensor.hpp>
#include <tpsim/layout/row_identity.hpp>

namespace runs_tests {

using namespace tpsim;
using test::list;

namespace {

std::vector<Index> at(const std::vector<Index>& values, const std::vector<Index>& positions) {
  std::vector<Index> out;
  for (const Index p : positions) out.push_back(values.at(static_cast<std::size_t>(p)));
  return out;
}

// A sequence with rising, constant and falling runs, and the same as a list.
std::pair<Runs, std::vector<Index>> any_runs(Index limit) {
  Runs runs;
  std::vector<Index> naive;
  for (Index pieces = *rc::gen::inRange<Index>(0, 7); pieces > 0; --pieces) {
    Run run{*rc::gen::inRange<Index>(0, limit), *rc::gen::inRange<Index>(0, 6),
            *rc::gen::inRange<Index>(-3, 4)};
    while (run.length > 0 && (run.last() < 0 || run.last() >= limit)) --run.length;
    runs.append(run);
    for (Index i = 0; i < run.length; ++i) naive.push_back(run.at(i));
  }
  return {runs, naive};
}

}  // namespace

TEST_CASE("runs: appending keeps every element in order") {
  REQUIRE(rc::check([] {
    const auto [runs, naive] = any_runs(40);
    RC_ASSERT(list(runs) == naive);
    RC_ASSERT(runs.size() == static_cast<Index>(naive.size()));
    RC_ASSERT(runs.empty() == naive.empty());
    for (std::size_t i = 0; i < naive.size(); ++i)
      RC_ASSERT(runs[static_cast<Index>(i)] == naive[i]);
  }));
}

TEST_CASE("runs: equality compares elements however the sequence is cut") {
  REQUIRE(rc::check([] {
    const auto [a, naive_a] = any_runs(6);
    Runs again;
    for (const Index x : naive_a) again.append({x, 1, 1});
    RC_ASSERT(a == again);
    const auto [b, naive_b] = any_runs(6);
    const auto differ =
        std::mismatch(naive_a.begin(), naive_a.end(), naive_b.begin(), naive_b.end());
    const Index position =
        naive_a == naive_b ? -1 : static_cast<Index>(differ.first - naive_a.begin());
    RC_ASSERT(Runs::first_difference(a, b) == position);
    RC_ASSERT((a == b) == (naive_a == naive_b));
  }));
}

TEST_CASE("runs: slicing and selecting are composition") {
  REQUIRE(rc::check([] {
    const auto [runs, naive] = any_runs(40);
    const auto n = static_cast<Index>(naive.size());
    const Index start = *rc::gen::inRange<Index>(0, n + 1);
    const Index length = *rc::gen::inRange<Index>(0, n - start + 1);
    RC_ASSERT(list(runs.slice(start, length)) ==
              std::vector<Index>(naive.begin() + start, naive.begin() + start + length));
    RC_PRE(n > 0);
    const auto [positions, naive_positions] = any_runs(n);
    RC_ASSERT(list(runs.select(positions)) == at(naive, naive_positions));
  }));
}

TEST_CASE("runs: a range is known whatever its runs") {
  REQUIRE(rc::check([] {
    const auto [runs, naive] = any_runs(8);
    bool range = !naive.empty();
    for (std::size_t i = 0; i < naive.size(); ++i)
      range = range && naive[i] == naive[0] + static_cast<Index>(i);
    if (!naive.empty())
      RC_ASSERT(runs.is_range(naive.front(), naive.front() + runs.size()) == range);
  }));
  CHECK(Runs::range(3, 9).is_range(3, 9));
  CHECK(Runs().is_range(4, 4));
  CHECK_FALSE(Runs::range(3, 9).is_range(3, 10));
}

TEST_CASE("runs: evenly spaced single indices become one run") {
  Runs runs;
  for (Index i = 0; i < 100; ++i) runs.append({2 * i, 1, 1});
  CHECK(runs.runs().size() == 1);
  CHECK(runs.str() == "0:199:2");
  CHECK(Runs::range(0, 4).str() == "[0, 4)");
  CHECK(Runs().str() == "none");
}

TEST_CASE("full tensor: pieces name the origin of every element of any view") {
  REQUIRE(rc::check([] {
    const test::RandomLayout drawn = test::random_layout();
    const RowLayout layout = bind_layout(LayoutExpr::parse(drawn.text), drawn.axes);
    constexpr Index cols = 5;
    const auto stored = test::stored(layout, cols);
    const auto [positions, naive] = any_runs(layout.rows());
    const FullTensor view = FullTensor(stored).rows(positions);
    RC_ASSERT(view.shape() == Shape(positions.size(), cols));

    const Index row = *rc::gen::inRange<Index>(0, positions.size() + 1);
    const Index rows = *rc::gen::inRange<Index>(0, positions.size() - row + 1);
    const Index col = *rc::gen::inRange<Index>(0, cols);
    const Index width = *rc::gen::inRange<Index>(0, cols - col + 1);
    std::vector<std::pair<std::string, Index>> got, want;
    for (const Piece& p : view.pieces(row, rows, col, width)) {
      RC_ASSERT(p.row == static_cast<Index>(got.size()));
      RC_ASSERT((p.col == 0 && p.cols == width && p.src_col == col && p.tensor != nullptr));
      for (Index i = 0; i < p.rows; ++i)
        got.emplace_back(p.tensor->name, p.src_row + i * p.src_stride);
    }
    for (Index i = row; i < row + rows; ++i)
      want.push_back(drawn.meaning(naive[static_cast<std::size_t>(i)]));
    RC_ASSERT(got == want);
  }));
}

TEST_CASE("full tensor: rows outside are refused") {
  const RowLayout layout = bind_layout(LayoutExpr::parse("q:4 + k:2"), {});
  const FullTensor full(test::stored(layout, 3));
  CHECK_THROWS_AS(full.rows(Runs::range(5, 7)), LayoutError);
  CHECK_THROWS_AS(full.rows(Runs::range(-1, 2)), LayoutError);
  CHECK_THROWS_AS(full.pieces(0, 7, 0, 3), LayoutError);
  CHECK_THROWS_AS(full.pieces(0, 6, 1, 3), LayoutError);
  CHECK_THROWS_AS(full.pieces(-1, 2, 0, 3), LayoutError);
  CHECK(full.pieces(0, 6, 0, 3).size() == 2);
}

}  // namespace runs_tests
