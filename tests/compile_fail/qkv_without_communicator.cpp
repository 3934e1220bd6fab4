// expect: no matching function for call to .*QKVParallelLinear
// SPDX-License-Identifier: MIT
// The rank is an argument, never ambient: a layer without a communicator cannot be made.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

using Layer = tpsim::QKVParallelLinear<tpsim::testing::DummyBackend>;
Layer make(tpsim::testing::DummyBackend& backend) {
  return Layer(backend, {.hidden = 8, .head_dim = 2, .heads = 4, .kv_heads = 2});
}
