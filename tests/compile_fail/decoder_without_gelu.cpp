// expect: BackendHasGelu
// SPDX-License-Identifier: MIT
// A backend without one of the activations is refused by the name of what it lacks.
#include <tpsim/backend/decoder_backend.hpp>

#include <tests/support/dummy_backend.hpp>

template <tpsim::DecoderBackend B>
struct Up {
  [[nodiscard]] typename B::Tensor operator()(B& b, const typename B::Tensor& x) {
    return tpsim::activate(b, tpsim::Activation::gelu, x);
  }
};
template struct Up<tpsim::testing::WithoutGelu>;
