// SPDX-License-Identifier: MIT
// The static reading: the same layers without numbers. Each column of an activation stands for an
// expression, and knows how much of it has been summed so far. Sizes do not matter: this o_proj is
// the one of llama-3-70b.
#include <tpsim/backend/symbolic/symbolic_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>

#include <fmt/format.h>

using namespace tpsim;
using B = SymbolicBackend;

// A tensor of the checkpoint: a name and a shape, no numbers.
FullTensor named(const std::string& name, Shape shape) {
  auto stored = std::make_shared<StoredTensor>();
  stored->name = name;
  stored->shape = shape;
  stored->identity = {{0, shape.rows(), std::make_shared<LogicalTensor>(name, shape), 0, 1}};
  return FullTensor(stored);
}

int main() {
  constexpr Index width = 8192, tokens = 16;
  constexpr int tp = 4;
  SymbolicContext context;  // what the ranks share: the expressions and the findings
  VirtualRanks world{tp};
  world.run([&](Communicator& comm) {
    B backend(context, comm.rank());
    RowParallelLinear<B> layer(backend, comm, width, width, {.reduce_results = false});
    layer.weight_loader(layer.weight, named("o_proj.weight", {width, width}));
    for (const Piece& p : layer.weight.pieces())
      fmt::print("rank {} holds rows [{}, {}) x columns [{}, {}) of {}\n", comm.rank(), p.src_row,
                 p.src_row + p.rows, p.src_col, p.src_col + p.cols, p.tensor->name);

    const B::Tensor x = backend.input("x", tokens, width);  // each rank takes its own columns
    const B::Tensor mine = backend.slice(x, 1, comm.rank() * (width / tp), width / tp);
    B::Tensor y = layer.forward(mine);
    fmt::print("rank {} before the sum: {}\n", comm.rank(), describe(context, y));
    y = all_reduce(backend, comm, std::move(y));
    if (comm.rank() == 0) fmt::print("after the sum: {}\n", describe(context, y));

    // A second sum counts everything tp times. The value says so; compare() with full() finds it.
    y = all_reduce(backend, comm, std::move(y));
    if (comm.rank() == 0) fmt::print("after another: {}\n", describe(context, y));
  });
}
