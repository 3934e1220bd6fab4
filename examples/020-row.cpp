// SPDX-License-Identifier: MIT
// Row parallel: the columns of W are cut. Each rank multiplies its own columns of x, which gives a
// partial product of the full size; the sum over the ranks is the result.
//
// The bias is whole on every rank, but it must count once: rank 0 alone adds it before the sum.
#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "print.hpp"

using namespace tpsim;
using Row = RowParallelLinear<EigenBackend<float>>;

int main() {
  const FullTensor w = memory_tensor("weight", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const FullTensor bias = memory_tensor("bias", Shape(2), {10, 20});
  const auto load = [&](Row& layer) {
    layer.weight_loader(layer.weight, w);
    layer.weight_loader(*layer.bias, bias);
  };
  VirtualRanks world{2};

  // By hand, to see what the ranks bring to the sum.
  world.run([&](Communicator& comm) {
    EigenBackend<float> backend(comm.rank());
    Row layer(backend, comm, /*in=*/4, /*out=*/2,
              {.bias = true, .skip_bias_add = true, .reduce_results = false});
    load(layer);
    fmt::print("rank {} weight {} {}, bias {}\n", comm.rank(), layer.weight.shape.str(),
               text(layer.weight), text(*layer.bias));

    auto y = layer.forward(ones(backend, 1, 2));  // x is [1, 4]; each rank gets its 2 columns
    if (comm.rank() == 0) y = backend.add_bias(y, *layer.skipped_bias());
    fmt::print("rank {} partial {}\n", comm.rank(), text(y));
    y = all_reduce(backend, comm, std::move(y));
    fmt::print("rank {} summed {}\n", comm.rank(), text(y));
  });

  // The layer does the same by itself; at tp 1 it is the product that nobody cut.
  for (const int tp : {1, 2, 4}) {
    VirtualRanks ranks{tp};
    ranks.run([&](Communicator& comm) {
      EigenBackend<float> backend(comm.rank());
      Row layer(backend, comm, 4, 2, {.bias = true});
      load(layer);
      const auto y = layer.forward(ones(backend, 1, 4 / tp));
      if (comm.rank() == 0) fmt::print("tp {}: {}\n", tp, text(y));
    });
  }
}
