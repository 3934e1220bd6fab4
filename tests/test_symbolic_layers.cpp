// SPDX-License-Identifier: MIT
// The static reading of whole layers: their value is that of full(), by id.
#include <tpsim/layers/mlp.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/symbolic_fixture.hpp>

namespace symbolic_layers_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

using Tensor = SymbolicTensor;
constexpr Index tokens = 3;

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
Tensor mlp_rank(SymbolicBackend& b, Communicator& comm, const MlpShape& s, bool swapped) {
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

TEST_CASE("gated mlp: the value at every tp is the one of full and carries its degrees") {
  for (const bool bias : {false, true})
    for (const int tp : {1, 2, 3, 4, 6, 12}) {
      SymbolicContext context;
      const MlpShape s{10, 24, bias};
      const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
        return mlp_rank(b, comm, s, false);
      });
      SymbolicBackend b(context, -1);
      const Tensor full = GatedMLP<SymbolicBackend>::full(b, b.input("x", tokens, 10),
                                                          reference(b, mlp_tensors(s, bias)));
      INFO(messages(context));
      CHECK(context.findings().empty());
      for (const Tensor& t : out) CHECK_FALSE(compare(context, t, full));
      const std::vector<ValueId> ids{canonical(context, full)[0].value};
      const SoundnessFigures f = context.soundness(ids, tokens);
      // gate is of degree 2; silu(gate) up is 4 over 1; down adds 24 of them and a weight.
      if (!bias) CHECK(f == SoundnessFigures{2 * tokens * 24, 2, (4 + 1 + 23) + 24});
      Index calls = context.cost(-1).oracle_calls;
      for (int r = 0; r < tp; ++r) calls += context.cost(r).oracle_calls;
      CHECK(calls == 2 * tokens * 24);
      CHECK(context.cost(0).flops * tp == context.cost(-1).flops);
    }
}

TEST_CASE("gated mlp: gate and up exchanged give another value at every tp") {
  for (const int tp : {1, 2, 4}) {
    SymbolicContext context;
    const MlpShape s{10, 24, false};
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      return mlp_rank(b, comm, s, true);
    });
    SymbolicBackend b(context, -1);
    const Tensor full =
        GatedMLP<SymbolicBackend>::full(b, b.input("x", tokens, 10), reference(b, mlp_tensors(s)));
    CHECK(compare(context, out[0], full));
  }
}

TEST_CASE("gate and up columns that differ are named where they are multiplied") {
  SymbolicContext context;
  SymbolicBackend b(context, 2);
  const auto t = mlp_tensors({4, 8, false});
  const Tensor x = b.input("x", tokens, 4);
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
    return qkv.forward(b.input("x", tokens, s.hidden));
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

TEST_CASE("column parallel: a gather is whole and in order") {
  for (const int tp : {1, 2, 3, 6}) {
    SymbolicContext context;
    const FullTensor weight = full_tensor("weight", {12, 5}), bias = full_tensor("bias", Shape(12));
    std::vector<Tensor> shards(static_cast<std::size_t>(tp));
    const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
      ColumnParallelLinear<SymbolicBackend> layer(b, comm, 5, 12, {.bias = true});
      layer.weight_loader(layer.weight, weight);
      layer.weight_loader(*layer.bias, bias);
      shards[static_cast<std::size_t>(comm.rank())] = layer.forward(b.input("x", tokens, 5));
      return all_gather(b, comm, shards[static_cast<std::size_t>(comm.rank())]);
    });
    SymbolicBackend b(context, -1);
    const auto full = ColumnParallelLinear<SymbolicBackend>::full(b, b.input("x", tokens, 5),
                                                                  reference(b, {weight, bias}));
    require_equal(context, out, full);
    CHECK(out[0].columns.size() == 1);
    const Placement p = placement(context, pointers(shards));
    CHECK(p.kind == (tp == 1 ? PlacementKind::replicated : PlacementKind::sharded));
    if (tp > 1) CHECK(contains(p.text, "sharded over columns, each on 1 rank"));
  }
}

TEST_CASE("column parallel: a gather in the wrong order names the first wrong column") {
  SymbolicContext context;
  const FullTensor weight = full_tensor("weight", {6, 5});
  const auto out = run(context, 3, [&](SymbolicBackend& b, Communicator& comm) {
    const Index shard = 2 - comm.rank();
    const Tensor x = b.input("x", tokens, 5);
    return all_gather(b, comm, b.linear(x, held(b, weight, 2 * shard, 2, 0, 5)));
  });
  SymbolicBackend b(context, -1);
  const auto difference =
      compare(context, out[0], b.linear(b.input("x", tokens, 5), whole(b, weight)));
  REQUIRE(difference);
  CHECK(difference->column == 0);
  CHECK(difference->text ==
        "holds Lin(x, weight) columns [4, 6), expected Lin(x, weight) "
        "columns [0, 2)");
}

TEST_CASE("column shards: an all_reduce in place of a gather sums different columns") {
  SymbolicContext context;
  const FullTensor weight = full_tensor("weight", {6, 5});
  const auto out = run(context, 3, [&](SymbolicBackend& b, Communicator& comm) {
    const Tensor x = b.input("x", tokens, 5);
    return all_reduce(b, comm, b.linear(x, held(b, weight, 2 * comm.rank(), 2, 0, 5)));
  });
  REQUIRE(context.findings().size() == 1);
  CHECK(contains(messages(context),
                 "rank 0 holds Lin(x, weight) columns [0, 2), rank 1 holds "
                 "Lin(x, weight) columns [2, 4)"));
}

}  // namespace symbolic_layers_tests
