// expect: BackendHasSilu
// SPDX-License-Identifier: MIT
// A backend without the activation is refused by the name of what it lacks.
#include <tpsim/layers/mlp.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::GatedMLP<tpsim::testing::WithoutSilu>;
