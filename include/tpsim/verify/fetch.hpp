// SPDX-License-Identifier: MIT
// Numbers of a backend that computes elsewhere.
#pragma once

namespace tpsim {

/// Before the numbers of `x` are read: they may be on a device still.
template <class B>
void fetch_from(B& b, typename B::Tensor& x) {
  if constexpr (requires { b.fetch(x); }) b.fetch(x);
}

}  // namespace tpsim
