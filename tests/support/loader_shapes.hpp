// SPDX-License-Identifier: MIT
// Small layers that show, or hide, what loaders get wrong.
#pragma once

#include <string>
#include <utility>

#include <tests/support/verify_fixture.hpp>

namespace tpsim::testing {

// Heads whose rows are not the hidden size; more ranks than kv heads at tp 4.
inline LayerSpec shared_heads(int tp = 4) { return small("qkv", tp); }
inline LayerSpec heads(Index q, Index kv, int tp) {
  LayerSpec s = small("qkv", tp);
  s.qkv.heads = q;
  s.qkv.kv_heads = kv;
  return s;
}
inline LayerSpec group_heads() { return heads(12, 4, 2); }
inline LayerSpec unequal_parts() {
  LayerSpec s = small("merged", 4);
  s.parts = {{"gate", 12}, {"up", 8}};
  return s;
}
inline LayerSpec equal_parts() {
  LayerSpec s = small("merged", 4);
  s.parts = {{"gate", 12}, {"up", 12}};
  return s;
}
inline LayerSpec uneven_rows() {
  LayerSpec s = small("row", 4);
  s.in = 24;  // 6 columns a rank: not whole blocks of 4
  return s;
}
inline LayerSpec stored(LayerSpec s, const std::string& disk) {
  s.disk = disk;
  return s;
}

}  // namespace tpsim::testing
