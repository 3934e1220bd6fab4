// SPDX-License-Identifier: MIT
// The linear family by itself: shard ids, runs of parts, fused tensors, biases, refusals, groups.
#include <string>
#include <vector>

#include <tests/support/catch.hpp>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/layout/expression.hpp>
#include <tpsim/layout/memory_values.hpp>

namespace linear_tests {
namespace {

using namespace tpsim;
using Numeric = EigenBackend<float>;
using Matrix = eigen::Matrix<float>;

// A tensor whose element (r, c) is base + 100 r + c, so that every element tells its place.
FullTensor counted(const std::string& name, Shape shape, float base = 0) {
  std::vector<float> numbers;
  for (Index r = 0; r < shape.rows(); ++r)
    for (Index c = 0; c < shape.cols(); ++c)
      numbers.push_back(base + static_cast<float>(100 * r + c));
  return memory_tensor(name, shape, numbers);
}

std::vector<float> first_column(const eigen::Param& p) {
  std::vector<float> out;
  for (Index r = 0; r < p.shape.rows(); ++r) out.push_back(static_cast<float>(p.at(r, 0)));
  return out;
}

bool equal(const eigen::Param& a, const eigen::Param& b) {
  if (a.shape != b.shape) return false;
  for (Index r = 0; r < a.shape.rows(); ++r)
    for (Index c = 0; c < a.shape.cols(); ++c)
      if (a.bits(r, c) != b.bits(r, c)) return false;
  return true;
}

// The message of the LayoutError that `f` must throw.
template <class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const LayoutError& e) {
    return e.what();
  }
  return "nothing was refused";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::vector<MergedPart> three_parts{{"a", 4}, {"b", 8}, {"c", 12}};

}  // namespace

TEST_CASE("merged: shard ids by name and by index mean the same part") {
  for (int rank : {0, 1}) {
    FixedRank comm(rank, 2);
    Numeric b(rank);
    MergedColumnParallelLinear<Numeric> by_name(b, comm, 3, three_parts),
        by_index(b, comm, 3, three_parts);
    for (std::size_t k = 0; k < 3; ++k) {
      const FullTensor part =
          counted("part", Shape(three_parts[k].rows, 3), static_cast<float>(10000 * k));
      by_name.weight_loader(by_name.weight, part, three_parts[k].name);
      by_index.weight_loader(by_index.weight, part, static_cast<int>(k));
    }
    CHECK(by_name.weight.count_poison() == 0);
    CHECK(equal(by_name.weight, by_index.weight));
    // part b of rank 1 begins at row (4 + 0) / 2 of the param and at row 4 of b
    CHECK(by_name.weight.at(2, 1) == 10000 + 100 * 4 * rank + 1);
  }
}

TEST_CASE("merged: a run of consecutive parts equals its parts one by one") {
  for (int rank : {0, 1, 2, 3}) {
    FixedRank comm(rank, 4);
    Numeric b(rank);
    MergedColumnParallelLinear<Numeric> whole(b, comm, 3, three_parts),
        apart(b, comm, 3, three_parts);
    const FullTensor stacked = counted("b and c", Shape(20, 3));
    whole.weight_loader(whole.weight, stacked, "b", "c");
    apart.weight_loader(apart.weight, stacked.rows(Runs::range(0, 8)), "b");
    apart.weight_loader(apart.weight, stacked.rows(Runs::range(8, 20)), "c");
    CHECK(equal(whole.weight, apart.weight));
    CHECK(whole.weight.count_poison() == 3);  // part a: one row of three on each rank
    CHECK(contains(refusal([&] { whole.weight_loader(whole.weight, stacked, "c", "b"); }),
                   "forward"));
  }
}

TEST_CASE("qkv: index ids are q then k then v and unknown ids name the known ones") {
  FixedRank comm(1, 2);
  Numeric b(1);
  const QkvShape shape{3, 2, 4, 2, 1};  // the value heads are smaller
  QKVParallelLinear<Numeric> by_name(b, comm, shape), by_index(b, comm, shape);
  const FullTensor q = counted("q", Shape(8, 3)), k = counted("k", Shape(4, 3), 1e4F),
                   v = counted("v", Shape(2, 3), 2e4F);
  by_name.weight_loader(by_name.weight, q, "q");
  by_name.weight_loader(by_name.weight, k, "k");
  by_name.weight_loader(by_name.weight, v, "v");
  by_index.weight_loader(by_index.weight, q, 0);
  by_index.weight_loader(by_index.weight, k, 1);
  by_index.weight_loader(by_index.weight, v, 2);
  CHECK(equal(by_name.weight, by_index.weight));
  CHECK(first_column(by_name.weight) ==
        std::vector<float>{400, 500, 600, 700, 10200, 10300, 20100});
  CHECK(contains(refusal([&] { by_name.weight_loader(by_name.weight, q, "o"); }),
                 "the parts are q, k, v"));
  CHECK(contains(refusal([&] { by_name.weight_loader(by_name.weight, q, 3); }), "no part 3"));
}

TEST_CASE("qkv: with more ranks than kv heads neighbours share a head") {
  // 8 query heads and 2 kv heads of 1 row over 8 ranks: rank r holds kv head r / 4
  for (int rank = 0; rank < 8; ++rank) {
    FixedRank comm(rank, 8);
    Numeric b(rank);
    QKVParallelLinear<Numeric> layer(b, comm, {2, 1, 8, 2, 0});
    layer.weight_loader(layer.weight, counted("q", Shape(8, 2)), "q");
    layer.weight_loader(layer.weight, counted("k", Shape(2, 2), 1e4F), "k");
    layer.weight_loader(layer.weight, counted("v", Shape(2, 2), 2e4F), "v");
    const auto kv = static_cast<float>(rank / 4);
    CHECK(first_column(layer.weight) ==
          std::vector<float>{100.F * static_cast<float>(rank), 1e4F + 100 * kv, 2e4F + 100 * kv});
    CHECK(layer.num_kv_heads() == 1);
  }
}

TEST_CASE("qkv: a fused tensor in any order gives the params of separate tensors") {
  const QkvShape shape{3, 2, 4, 4, 0};
  const Axes axes{{"kv", 4}, {"g", 1}, {"h", 4}, {"d", 2}};
  for (const char* order : {"q:kv*g*d + k:kv*d + v:kv*d", "kv*(q:g*d + k:d + v:d)",
                            "h*(q:d + k:d + v:d)", "v:kv*d + q:kv*g*d + k:kv*d"}) {
    const RowLayout disk = bind_layout(LayoutExpr::parse(order), axes);
    const FullTensor fused = counted("qkv", Shape(24, 3));
    for (int rank : {0, 1, 2, 3}) {
      FixedRank comm(rank, 4);
      Numeric b(rank);
      QKVParallelLinear<Numeric> together(b, comm, shape), apart(b, comm, shape);
      together.weight_loader(together.weight, fused, disk);
      for (const char* part : {"q", "k", "v"})
        apart.weight_loader(apart.weight, fused.rows(disk.rows_of(part)), part);
      INFO(order << " rank " << rank);
      CHECK(together.weight.count_poison() == 0);
      CHECK(equal(together.weight, apart.weight));
    }
  }
}

TEST_CASE("biases: a row bias is whole on every rank and a column bias is cut like its rows") {
  FixedRank comm(1, 2);
  Numeric b(1);
  RowParallelLinear<Numeric> row(b, comm, 4, 2, {.bias = true});
  row.weight_loader(*row.bias, memory_tensor("bias", Shape(2), {10, 20}));
  CHECK(first_column(*row.bias) == std::vector<float>{10, 20});
  ColumnParallelLinear<Numeric> column(b, comm, 4, 2, {.bias = true});
  column.weight_loader(*column.bias, memory_tensor("bias", Shape(2), {10, 20}));
  CHECK(first_column(*column.bias) == std::vector<float>{20});
}

TEST_CASE("skip_bias_add: forward leaves the bias out and hands it to the caller") {
  FixedRank comm(0, 1);
  Numeric b;
  for (const bool skip : {false, true}) {
    ColumnParallelLinear<Numeric> layer(b, comm, 1, 2, {.bias = true, .skip_bias_add = skip});
    layer.weight_loader(layer.weight, memory_tensor("weight", Shape(2, 1), {1, 2}));
    layer.weight_loader(*layer.bias, memory_tensor("bias", Shape(2), {10, 20}));
    const Matrix y = layer.forward(b.input(Matrix(Matrix::Ones(1, 1)))).value;
    CHECK(y(0, 0) == (skip ? 1 : 11));
    CHECK(y(0, 1) == (skip ? 2 : 22));
    CHECK((layer.skipped_bias() == &*layer.bias) == skip);
  }
}

TEST_CASE("merged: gathered outputs are whole parts in order and not rank by rank") {
  VirtualRanks world{4};
  world.run([](Communicator& comm) {
    Numeric b(comm.rank());
    MergedColumnParallelLinear<Numeric> layer(b, comm, 1, three_parts, {.gather_output = true});
    for (std::size_t k = 0; k < 3; ++k)
      layer.weight_loader(
          layer.weight,
          counted("part", Shape(three_parts[k].rows, 1), static_cast<float>(10000 * k)),
          three_parts[k].name);
    const Matrix y = layer.forward(b.input(Matrix(Matrix::Ones(1, 1)))).value;
    REQUIRE(y.cols() == 24);
    Index column = 0;
    for (std::size_t k = 0; k < 3; ++k)
      for (Index r = 0; r < three_parts[k].rows; ++r)
        CHECK(y(0, column++) == static_cast<float>(10000 * k) + static_cast<float>(100 * r));
  });
}

TEST_CASE("refusals: every combination and shape that cannot be right names all its rules") {
  FixedRank comm(0, 3);
  Numeric b;
  CHECK(contains(refusal([&] {
                   RowParallelLinear<Numeric>(b, comm, 6, 2,
                                              {.bias = true, .reduce_results = false});
                 }),
                 "reduce_results is off"));
  CHECK(contains(refusal([&] {
                   ColumnParallelLinear<Numeric>(
                       b, comm, 2, 6, {.bias = true, .skip_bias_add = true, .gather_output = true});
                 }),
                 "whole columns and a cut bias"));
  const std::string parts = refusal([&] {
    MergedColumnParallelLinear<Numeric>(b, comm, 2, {{"a", 4}, {"b", 5}});
  });
  CHECK(contains(parts, "4 rows of part a over 3 ranks leaves 1"));  // although 4 + 5 divides by 3
  CHECK(contains(parts, "5 rows of part b over 3 ranks leaves 2"));
  const std::string heads = refusal([&] { QKVParallelLinear<Numeric>(b, comm, {8, 2, 8, 2, 0}); });
  CHECK(contains(heads, "8 query heads over 3 ranks leaves 2"));
  CHECK(contains(heads, "2 kv heads over 3 ranks leaves 2"));
  CHECK(contains(refusal([&] {
                   QKVParallelLinear<Numeric>(b, comm, {8, 2, 6, 4, 0});
                 }),
                 "6 query heads over 4 kv heads leaves 2"));
  ColumnParallelLinear<Numeric> column(b, comm, 2, 6);
  CHECK(contains(
      refusal([&] { column.weight_loader(column.weight, counted("weight", Shape(6, 3))); }),
      "weight is [6, 3], wanted [6, 2]"));
  CHECK(contains(
      refusal([&] { column.weight_loader(column.weight, counted("weight", Shape(5, 2))); }),
      "weight is [5, 2], wanted [6, 2]"));
}

TEST_CASE("groups: a layer in a sub-group takes its rank from the group and not from the world") {
  // World ranks 0..7 form two groups of four, each in reversed order: world rank 3 is tp_rank 0.
  std::vector<Matrix> outputs(8);
  VirtualRanks world{8};
  world.run([&](Communicator& comm) {
    const auto tp = comm.split(comm.rank() / 4, -comm.rank());
    REQUIRE(tp->rank() == 3 - comm.rank() % 4);
    Numeric b(tp->rank());
    GatedMLP<Numeric> mlp(b, *tp, {2, 8, true});
    for (const auto& [name, base] : {std::pair{"gate", 1.F}, {"up", 2.F}}) {
      mlp.gate_up_proj.weight_loader(mlp.gate_up_proj.weight, counted(name, Shape(8, 2), base),
                                     name);
      mlp.gate_up_proj.weight_loader(*mlp.gate_up_proj.bias, counted(name, Shape(8), base), name);
    }
    mlp.down_proj.weight_loader(mlp.down_proj.weight, counted("down", Shape(2, 8)));
    mlp.down_proj.weight_loader(*mlp.down_proj.bias, memory_tensor("bias", Shape(2), {7, 9}));
    CHECK(mlp.down_proj.weight.at(1, 0) == 100 + 2 * tp->rank());
    outputs[static_cast<std::size_t>(comm.rank())] =
        mlp.forward(b.input(Matrix(Matrix::Constant(3, 2, 1e-3F)))).value;
  });
  for (const Matrix& y : outputs) {
    REQUIRE(y.size() == 6);
    CHECK(y == outputs[0]);
  }
  CHECK(world.trace().size() == 3);  // the split and one all_reduce in each group
}

}  // namespace linear_tests
