// expect: no matching function for call to .*ColumnParallelLinear
// SPDX-License-Identifier: MIT
// An option of another layer is refused: a column layer always takes the whole input.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

using Layer = tpsim::ColumnParallelLinear<tpsim::testing::DummyBackend>;
Layer make(tpsim::testing::DummyBackend& backend, tpsim::Communicator& tp) {
  return Layer(backend, tp, 8, 8, {.input_is_parallel = false});
}
