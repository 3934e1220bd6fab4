// SPDX-License-Identifier: MIT
// Column parallel: the rows of W are cut. Each rank holds some rows of W and makes the output
// columns that belong to them; nothing is communicated.
//
// W is [4, 3] and row r of it is full of the number r, so that one sees whose rows a rank has.
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "print.hpp"

using namespace tpsim;

int main() {
  const FullTensor w = memory_tensor("weight", {4, 3}, {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3});

  VirtualRanks world{2};
  world.run([&](Communicator& comm) {
    EigenBackend<float> backend(comm.rank());
    ColumnParallelLinear<EigenBackend<float>> layer(backend, comm, /*in=*/3, /*out=*/4);
    layer.weight_loader(layer.weight, w);  // takes the rows of this rank out of the full tensor

    const auto y = layer.forward(ones(backend, /*tokens=*/5, 3));
    fmt::print("rank {} weight {} {}\n", comm.rank(), layer.weight.shape.str(), text(layer.weight));
    fmt::print("rank {} output {} {}\n", comm.rank(), backend.shape(y).str(), text(y));
  });
  fmt::print("{} collectives\n", world.trace().size());

  // With gather_output every rank gets all columns, for one all_gather.
  world.run([&](Communicator& comm) {
    EigenBackend<float> backend(comm.rank());
    ColumnParallelLinear<EigenBackend<float>> layer(backend, comm, 3, 4, {.gather_output = true});
    layer.weight_loader(layer.weight, w);
    const auto y = layer.forward(ones(backend, 1, 3));
    fmt::print("rank {} gathered {} {}\n", comm.rank(), backend.shape(y).str(), text(y));
  });
  for (const CollectiveRecord& c : world.trace())
    fmt::print("{} of {} among {} ranks\n", name(c.op), c.shape.str(), c.group_size);
}
