// SPDX-License-Identifier: MIT
// Merged column parallel: gate and up share one weight, and each is cut by itself. A rank holds its
// part of gate, then its part of up.
//
// Cutting the fused tensor as one block would give rank 0 all of gate and rank 1 all of up.
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "print.hpp"

using namespace tpsim;
using Merged = MergedColumnParallelLinear<EigenBackend<float>>;

int main() {
  const FullTensor gate = memory_tensor("gate_proj.weight", {4, 3}, std::vector<float>(12, 1));
  const FullTensor up = memory_tensor("up_proj.weight", {4, 3}, std::vector<float>(12, 2));
  std::vector<float> both(12, 1);
  both.insert(both.end(), 12, 2);
  const FullTensor fused = memory_tensor("gate_up_proj.weight", {8, 3}, both);
  const RowLayout blocked({{"gate", Runs::range(0, 4)}, {"up", Runs::range(4, 8)}});

  VirtualRanks world{2};
  world.run([&](Communicator& comm) {
    EigenBackend<float> backend(comm.rank());
    const std::vector<MergedPart> parts{{"gate", 4}, {"up", 4}};
    Merged layer(backend, comm, /*in=*/3, parts);
    layer.weight_loader(layer.weight, gate, "gate");
    layer.weight_loader(layer.weight, up, "up");
    fmt::print("rank {} separate {}\n", comm.rank(), text(layer.weight));

    Merged same(backend, comm, 3, parts);
    same.weight_loader(same.weight, fused, blocked);  // one tensor on disk, the same result
    fmt::print("rank {} fused    {}\n", comm.rank(), text(same.weight));
    fmt::print("rank {} output   {}\n", comm.rank(), text(layer.forward(ones(backend, 1, 3))));
  });
}
