// SPDX-License-Identifier: MIT
// Layers know no library: this file compiles every layer for a backend that is nothing but shapes.
//
// Compiled to an object only. `g++ -M` of it must list every header of include/tpsim/layers and no
// path of Eigen, CUDA, MPI, NCCL or Boost.
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/layers/shard_id.hpp>

#include <tests/support/dummy_backend.hpp>

namespace tpsim {

template class LinearBase<testing::DummyBackend>;
template class ReplicatedLinear<testing::DummyBackend>;
template class ColumnParallelLinear<testing::DummyBackend>;
template class MergedColumnParallelLinear<testing::DummyBackend>;
template class QKVParallelLinear<testing::DummyBackend>;
template class RowParallelLinear<testing::DummyBackend>;
template class GatedMLP<testing::DummyBackend>;

}  // namespace tpsim
