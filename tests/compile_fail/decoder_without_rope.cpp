// expect: BackendHasRope
// SPDX-License-Identifier: MIT
// A backend without rotary positions is refused by the name of what it lacks.
#include <tpsim/backend/decoder_backend.hpp>

#include <tests/support/dummy_backend.hpp>

template <tpsim::DecoderBackend B>
struct Turn {
  [[nodiscard]] typename B::Tensor operator()(B& b, const typename B::Tensor& x) {
    return b.rope(x, {0}, 8, {});
  }
};
template struct Turn<tpsim::testing::WithoutRope>;
