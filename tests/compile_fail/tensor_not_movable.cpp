// expect: BackendHasTensorAndParam
// SPDX-License-Identifier: MIT
// A tensor that cannot be moved is refused: collectives hand tensors over.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template class tpsim::RowParallelLinear<tpsim::testing::WithoutMovableTensor>;
