// SPDX-License-Identifier: MIT
// Shapes of whole models for tests of tp rules, padding and costs.
#pragma once

#include <tpsim/verify/tp_padding.hpp>

#include <tests/support/catch.hpp>

namespace tpsim::test {

inline ModelShape llama_3_8b() {
  ModelShape m;
  m.name = "llama-3-8b";
  m.hidden = 4096, m.intermediate = 14336, m.heads = 32, m.kv_heads = 8, m.head_dim = 128;
  m.layers = 32, m.vocab = 128256;
  return m;
}

inline ModelShape sizes(Index heads, Index kv_heads, Index intermediate, Index vocab) {
  ModelShape m;
  m.hidden = 64, m.head_dim = 16, m.layers = 2;
  m.heads = heads, m.kv_heads = kv_heads, m.intermediate = intermediate, m.vocab = vocab;
  return m;
}

/// The shape that the smallest padding gives; its bytes are checked.
inline ModelShape padded(const ModelShape& m, Engine engine, Index tp, RuleArea area) {
  const auto padding = smallest_padding(m, engine, tp, area);
  REQUIRE(padding);
  CHECK(padding->added_bytes == checkpoint_bytes(padding->padded) - checkpoint_bytes(m));
  CHECK(padding->added_bytes > 0);
  return padding->padded;
}

}  // namespace tpsim::test
