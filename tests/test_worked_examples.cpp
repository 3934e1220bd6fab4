// SPDX-License-Identifier: MIT
// The worked examples with their numbers: what each rank holds, brings to a sum and returns.
#include <map>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layout/memory_values.hpp>
#include <tpsim/verify/faults/faulty_comm.hpp>

#include <tests/support/catch.hpp>

namespace worked_examples_tests {

using namespace tpsim;

namespace {

using B = EigenBackend<float>;
using Rows = std::vector<std::vector<float>>;

// A parameter or an activation as plain rows; a bias is one row.
Rows rows(const eigen::Param& p) {
  const bool bias = p.shape.rank() == 1;
  Rows out(static_cast<std::size_t>(bias ? 1 : p.shape.rows()));
  for (Index r = 0; r < p.shape.rows(); ++r)
    for (Index c = 0; c < p.shape.cols(); ++c)
      out[static_cast<std::size_t>(bias ? 0 : r)].push_back(static_cast<float>(p.at(r, c)));
  return out;
}
Rows rows(const B::Tensor& x) {
  Rows out(static_cast<std::size_t>(x.value.rows()));
  for (Index r = 0; r < x.value.rows(); ++r)
    out[static_cast<std::size_t>(r)].assign(x.value.row(r).begin(), x.value.row(r).end());
  return out;
}
// `count` columns of row r are all numbers[r].
Rows filled(const std::vector<float>& numbers, std::size_t count) {
  Rows out;
  for (const float n : numbers) out.emplace_back(count, n);
  return out;
}
FullTensor tensor(const std::string& name, const Rows& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return memory_tensor(
      name, {static_cast<Index>(rows.size()), static_cast<Index>(rows.front().size())}, all);
}
B::Tensor ones(B& b, Index tokens, Index columns) {
  return b.input(eigen::Matrix<float>(eigen::Matrix<float>::Ones(tokens, columns)));
}

// Calls program(backend, comm) on each rank; [rank] of what it returns.
template <class Program>
auto on_ranks(int tp, Program program) {
  std::vector<decltype(program(std::declval<B&>(), std::declval<Communicator&>()))> out(
      static_cast<std::size_t>(tp));
  VirtualRanks world{tp};
  world.run([&](Communicator& comm) {
    B backend(comm.rank());
    out[static_cast<std::size_t>(comm.rank())] = program(backend, comm);
  });
  return out;
}

struct Seen {
  Shape weight_shape, output_shape;
  Rows weight, bias, output, partial;
};
using Held = std::vector<Seen>;

// Passes all on and keeps what the rank gave to an all_reduce.
class Listening final : public detail::PassOn {
 public:
  Listening(Communicator& world, Rows& heard) : PassOn(world), heard_(&heard) {}

 protected:
  void run(const Call& call) override {
    if (call.op == CollectiveOp::all_reduce)
      *heard_ = rows(*static_cast<const B::Tensor*>(call.in.tensor));
    PassOn::run(call);
  }

 private:
  Rows* heard_;
};

Held column_example(int tp) {
  return on_ranks(tp, [](B& b, Communicator& comm) {
    ColumnParallelLinear<B> layer(b, comm, 3, 4);
    layer.weight_loader(layer.weight, tensor("weight", filled({0, 1, 2, 3}, 3)));
    const B::Tensor y = layer.forward(ones(b, 5, 3));
    return Seen{layer.weight.shape, b.shape(y), rows(layer.weight), {}, rows(y), {}};
  });
}

Held row_example(int tp) {
  return on_ranks(tp, [](B& b, Communicator& world) {
    Seen seen;
    Listening comm(world, seen.partial);
    RowParallelLinear<B> layer(b, comm, 4, 2, {.bias = true});
    layer.weight_loader(layer.weight, tensor("weight", {{1, 2, 3, 4}, {5, 6, 7, 8}}));
    layer.weight_loader(*layer.bias, memory_tensor("bias", Shape(2), {10, 20}));
    const B::Tensor y = layer.forward(ones(b, 1, 4 / world.size()));
    seen = {layer.weight.shape, b.shape(y), rows(layer.weight),
            rows(*layer.bias),  rows(y),    std::move(seen.partial)};
    return seen;
  });
}

constexpr QkvShape qkv_shape{.hidden = 3, .head_dim = 2, .heads = 4, .kv_heads = 2};
Held qkv_example(int tp) {
  return on_ranks(tp, [](B& b, Communicator& comm) {
    QKVParallelLinear<B> layer(b, comm, qkv_shape);
    layer.weight_loader(layer.weight, tensor("q_proj.weight", filled({0, 0, 1, 1, 2, 2, 3, 3}, 3)),
                        "q");
    layer.weight_loader(layer.weight, tensor("k_proj.weight", filled({10, 10, 11, 11}, 3)), "k");
    layer.weight_loader(layer.weight, tensor("v_proj.weight", filled({20, 20, 21, 21}, 3)), "v");
    const B::Tensor y = layer.forward(ones(b, 1, 3));
    return Seen{layer.weight.shape, b.shape(y), rows(layer.weight), {}, rows(y), {}};
  });
}

Held merged_example(int tp) {
  return on_ranks(tp, [](B& b, Communicator& comm) {
    MergedColumnParallelLinear<B> layer(b, comm, 3, {{"gate", 4}, {"up", 4}});
    layer.weight_loader(layer.weight, tensor("gate_proj.weight", filled({1, 1, 1, 1}, 3)), "gate");
    layer.weight_loader(layer.weight, tensor("up_proj.weight", filled({2, 2, 2, 2}, 3)), "up");
    const B::Tensor y = layer.forward(ones(b, 1, 3));
    return Seen{layer.weight.shape, b.shape(y), rows(layer.weight), {}, rows(y), {}};
  });
}

}  // namespace

TEST_CASE("worked example: column rows 0 1 are on rank 0 and rows 2 3 on rank 1") {
  const Held ranks = column_example(2);
  CHECK(ranks[0].weight_shape == Shape(2, 3));
  CHECK(ranks[1].weight_shape == Shape(2, 3));
  CHECK(ranks[0].weight == filled({0, 1}, 3));
  CHECK(ranks[1].weight == filled({2, 3}, 3));
  CHECK(ranks[0].output_shape == Shape(5, 2));
  CHECK(ranks[1].output_shape == Shape(5, 2));
  CHECK(ranks[0].output == Rows(5, {0, 3}));
  CHECK(ranks[1].output == Rows(5, {6, 9}));
}

TEST_CASE("worked example: column outputs side by side are the whole product at every tp") {
  for (const int tp : {1, 2, 4}) {
    const Held ranks = column_example(tp);
    Rows weight, output(5);
    for (const Seen& s : ranks) {
      CHECK(s.weight_shape == Shape(4 / tp, 3));
      weight.insert(weight.end(), s.weight.begin(), s.weight.end());
      for (std::size_t t = 0; t < 5; ++t)
        output[t].insert(output[t].end(), s.output[t].begin(), s.output[t].end());
    }
    CHECK(weight == filled({0, 1, 2, 3}, 3));
    CHECK(output == Rows(5, {0, 3, 6, 9}));
  }
}

TEST_CASE("worked example: row partials are 13 31 and 7 15 and their sum 20 46") {
  const Held ranks = row_example(2);
  CHECK(ranks[0].weight_shape == Shape(2, 2));
  CHECK(ranks[0].weight == Rows{{1, 2}, {5, 6}});
  CHECK(ranks[1].weight == Rows{{3, 4}, {7, 8}});
  for (const Seen& s : ranks) CHECK(s.bias == Rows{{10, 20}});
  CHECK(ranks[0].partial == Rows{{13, 31}});
  CHECK(ranks[1].partial == Rows{{7, 15}});
  for (const Seen& s : ranks) CHECK(s.output == Rows{{20, 46}});
}

TEST_CASE("worked example: row results equal the unsharded product on every rank at every tp") {
  B b;
  FullParams<B> whole;
  const std::map<std::string, FullTensor> stored{
      {"weight", tensor("weight", {{1, 2, 3, 4}, {5, 6, 7, 8}})},
      {"bias", memory_tensor("bias", Shape(2), {10, 20})}};
  for (const auto& [name, full] : stored) {
    auto it = whole.emplace(name, b.empty(name, full.shape())).first;
    b.copy(it->second, 0, 0, full, 0, full.shape().rows());
  }
  const Rows unsharded = rows(RowParallelLinear<B>::full(b, ones(b, 1, 4), whole));
  CHECK(unsharded == Rows{{20, 46}});
  for (const int tp : {1, 2, 4}) {
    const Held ranks = row_example(tp);
    CHECK(ranks.size() == static_cast<std::size_t>(tp));
    for (const Seen& s : ranks) {
      CHECK(s.weight_shape == Shape(2, 4 / tp));
      CHECK(s.bias == Rows{{10, 20}});
      CHECK(s.output == unsharded);
    }
    CHECK(ranks[0].partial.empty() == (tp == 1));  // alone, nothing is communicated
  }
}

TEST_CASE("worked example: row with reduce_results off leaves the sum and the bias to the caller") {
  const auto ranks = on_ranks(2, [](B& b, Communicator& comm) {
    RowParallelLinear<B> layer(b, comm, 4, 2,
                               {.bias = true, .skip_bias_add = true, .reduce_results = false});
    layer.weight_loader(layer.weight, tensor("weight", {{1, 2, 3, 4}, {5, 6, 7, 8}}));
    layer.weight_loader(*layer.bias, memory_tensor("bias", Shape(2), {10, 20}));
    const B::Tensor partial = layer.forward(ones(b, 1, 2));
    const B::Tensor y = b.add_bias(all_reduce(b, comm, partial), *layer.skipped_bias());
    return std::pair(rows(partial), rows(y));
  });
  CHECK(ranks[0].first == Rows{{3, 11}});
  CHECK(ranks[1].first == Rows{{7, 15}});
  for (const auto& r : ranks) CHECK(r.second == Rows{{20, 46}});
}

TEST_CASE("worked example: qkv heads 0 1 with kv head 0 on rank 0 and 2 3 with 1 on rank 1") {
  const Held ranks = qkv_example(2);
  for (const Seen& s : ranks) CHECK(s.weight_shape == Shape(8, 3));
  CHECK(ranks[0].weight == filled({0, 0, 1, 1, 10, 10, 20, 20}, 3));
  CHECK(ranks[1].weight == filled({2, 2, 3, 3, 11, 11, 21, 21}, 3));
  CHECK(ranks[0].output == Rows{{0, 0, 3, 3, 30, 30, 60, 60}});
  CHECK(ranks[1].output == Rows{{6, 6, 9, 9, 33, 33, 63, 63}});
}

TEST_CASE("worked example: qkv whole at tp 1 and with shared kv heads at tp 4") {
  CHECK(qkv_example(1)[0].weight ==
        filled({0, 0, 1, 1, 2, 2, 3, 3, 10, 10, 11, 11, 20, 20, 21, 21}, 3));
  const Held ranks = qkv_example(4);
  for (std::size_t r = 0; r < 4; ++r) {
    const auto q = static_cast<float>(r), kv = static_cast<float>(r / 2);
    CHECK(ranks[r].weight_shape == Shape(6, 3));
    CHECK(ranks[r].weight == filled({q, q, 10 + kv, 10 + kv, 20 + kv, 20 + kv}, 3));
    CHECK(ranks[r].output ==
          Rows{{3 * q, 3 * q, 30 + 3 * kv, 30 + 3 * kv, 60 + 3 * kv, 60 + 3 * kv}});
  }
  CHECK_THROWS_AS(qkv_example(3), LayoutError);
  CHECK_THROWS_AS(qkv_example(8), LayoutError);
}

TEST_CASE("worked example: merged rank 0 holds gate 1 1 and up 2 2") {
  for (const Seen& s : merged_example(2)) {
    CHECK(s.weight_shape == Shape(4, 3));
    CHECK(s.weight == filled({1, 1, 2, 2}, 3));
    CHECK(s.output == Rows{{3, 3, 6, 6}});
  }
  CHECK(merged_example(1)[0].weight == filled({1, 1, 1, 1, 2, 2, 2, 2}, 3));
  for (const Seen& s : merged_example(4)) CHECK(s.weight == filled({1, 2}, 3));
  CHECK_THROWS_AS(merged_example(3), LayoutError);
}

}  // namespace worked_examples_tests
