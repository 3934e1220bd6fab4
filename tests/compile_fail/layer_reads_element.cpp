// expect: no match for call to .*DummyTensor
// SPDX-License-Identifier: MIT
// A layer that looks at an element, and could branch on it, does not compile on shapes alone.
#include <tpsim/layers/linear.hpp>

#include <tests/support/dummy_backend.hpp>

template <tpsim::Backend B>
struct PeekingLinear : tpsim::RowParallelLinear<B> {
  [[nodiscard]] bool is_positive(const typename B::Tensor& x) { return x(0, 0) > 0; }
};
template struct PeekingLinear<tpsim::testing::DummyBackend>;
