// expect: BackendHasReduce
// SPDX-License-Identifier: MIT
// A backend whose tensors cannot be summed over ranks is refused by the name of what it lacks.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::RowParallelLinear<tpsim::testing::WithoutReduce>;
