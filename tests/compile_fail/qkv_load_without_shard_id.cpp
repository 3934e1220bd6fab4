// expect: no matching function for call to .*weight_loader
// SPDX-License-Identifier: MIT
// A merged layer must be told which part a tensor is.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

using Layer = tpsim::QKVParallelLinear<tpsim::testing::DummyBackend>;
void load(Layer& layer, const tpsim::FullTensor& q_proj) {
  layer.weight_loader(layer.weight, q_proj);
}
