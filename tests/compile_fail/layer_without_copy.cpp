// expect: BackendHasCopy
// SPDX-License-Identifier: MIT
// A backend that cannot fill a parameter is refused by the name of what it lacks.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::QKVParallelLinear<tpsim::testing::WithoutCopy>;
