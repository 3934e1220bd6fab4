// expect: BackendHasAttention
// SPDX-License-Identifier: MIT
// A backend that cannot attend is refused by the name of what it lacks.
#include <tpsim/backend/decoder_backend.hpp>

#include <tests/support/dummy_backend.hpp>

template <tpsim::DecoderBackend B>
struct Attend {
  [[nodiscard]] typename B::Tensor operator()(B& b, const typename B::Tensor& x) {
    return b.attention(x, x, x, {}, nullptr);
  }
};
template struct Attend<tpsim::testing::WithoutAttention>;
