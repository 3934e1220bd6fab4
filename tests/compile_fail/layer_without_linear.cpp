// expect: BackendHasLinear
// SPDX-License-Identifier: MIT
// A backend that cannot multiply is refused by the name of what it lacks.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::ColumnParallelLinear<tpsim::testing::WithoutLinear>;
