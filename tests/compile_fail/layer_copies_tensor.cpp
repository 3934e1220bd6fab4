// expect: use of deleted function .*DummyTensor
// SPDX-License-Identifier: MIT
// A layer that copies a tensor does not compile: each copy would cost device memory.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template <tpsim::Backend B>
struct CopyingLinear : tpsim::RowParallelLinear<B> {
  [[nodiscard]] typename B::Tensor same(const typename B::Tensor& x) { return x; }
};
template struct CopyingLinear<tpsim::testing::DummyBackend>;
