// SPDX-License-Identifier: MIT
// The gated MLP, down(silu(gate x) * (up x)): merged column parallel, then row parallel on the same
// columns. Nothing is exchanged between them; one all_reduce at the end.
//
// Floating-point sums depend on their order, so tp 4 and tp 1 need not agree in every bit. The
// backend carries a bound on its rounding error along: they must agree within the two bounds.
#include <cmath>

#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/layout/memory_values.hpp>

#include "print.hpp"

using namespace tpsim;
using B = EigenBackend<float>;

// [rows, cols] of the numbers -0.5, -0.25, 0, 0.25, 0.5 in some order.
FullTensor weight(const char* name, Index rows, Index cols, Index step) {
  std::vector<float> numbers;
  for (Index i = 0; i < rows * cols; ++i)
    numbers.push_back(0.25F * static_cast<float>((i * step + i / cols) % 5 - 2));
  return memory_tensor(name, {rows, cols}, numbers);
}

// What rank 0 returns for two tokens.
B::Tensor run(int tp) {
  B::Tensor result;
  VirtualRanks world{tp};
  world.run([&](Communicator& comm) {
    B backend(comm.rank(), DType::f32, {.track_bounds = true});
    GatedMLP<B> mlp(backend, comm, {.hidden = 4, .intermediate = 8});
    mlp.gate_up_proj.weight_loader(mlp.gate_up_proj.weight, weight("gate", 8, 4, 3), "gate");
    mlp.gate_up_proj.weight_loader(mlp.gate_up_proj.weight, weight("up", 8, 4, 7), "up");
    mlp.down_proj.weight_loader(mlp.down_proj.weight, weight("down", 4, 8, 2));
    eigen::Matrix<float> x(2, 4);
    x << 1, -2, 3, 0.5F, -1, 4, 2, 1;
    const B::Tensor y = mlp.forward(backend.input(x));
    if (comm.rank() == 0) result = y;
  });
  for (const CollectiveRecord& c : world.trace())
    fmt::print("tp {}: {} of {} among {} ranks\n", tp, name(c.op), c.shape.str(), c.group_size);
  return result;
}

int main() {
  const B::Tensor one = run(1), four = run(4);
  for (Index t = 0; t < 2; ++t)
    for (Index c = 0; c < 4; ++c) {
      const double difference = std::abs(static_cast<double>(one.value(t, c) - four.value(t, c)));
      fmt::print("[{}, {}] tp 1 {:8.4f}  tp 4 {:8.4f}  {}\n", t, c, one.value(t, c),
                 four.value(t, c),
                 difference <= one.bound_at(t, c) + four.bound_at(t, c) ? "agree" : "DIFFER");
    }
}
