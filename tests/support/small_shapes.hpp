// SPDX-License-Identifier: MIT
// Shapes that are small and hide little: heads that do not fill hidden, parts of unequal width,
// widths of the wrong side larger.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim::testing {

/// Of one layer, to be used at every tp that they allow.
inline std::vector<LayerSpec> small_shapes(const std::string& layer) {
  std::vector<LayerSpec> out;
  const auto add = [&](auto&& set) {
    LayerSpec s;
    s.layer = layer;
    s.tokens = 5;
    set(s);
    out.push_back(std::move(s));
  };
  if (layer == "qkv") {
    add([](LayerSpec& s) { s.qkv = {32, 6, 8, 2, 0}; });  // 8 * 6 is not 32
    add([](LayerSpec& s) { s.qkv = {9, 2, 12, 4, 3}; });
    add([](LayerSpec& s) { s.qkv = {8, 1, 8, 8, 0}; });  // as many kv heads as query heads
  } else if (layer == "mlp") {
    add([](LayerSpec& s) { s.qkv.hidden = 7, s.intermediate = 12; });
    add([](LayerSpec& s) { s.qkv.hidden = 16, s.intermediate = 8; });
  } else if (layer == "merged") {
    add([](LayerSpec& s) { s.in = 5, s.parts = {{"gate", 12}, {"up", 8}}; });
    add([](LayerSpec& s) { s.in = 6, s.parts = {{"a", 8}, {"b", 24}, {"c", 16}}; });
  } else {
    add([](LayerSpec& s) { s.in = 96, s.out = 8; });   // in far larger than out
    add([](LayerSpec& s) { s.in = 8, s.out = 360; });  // and the reverse
    add([](LayerSpec& s) { s.in = s.out = 24; });
  }
  return out;
}

}  // namespace tpsim::testing
