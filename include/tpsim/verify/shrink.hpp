// SPDX-License-Identifier: MIT
// From a failing layer to the smallest one that still fails.
#pragma once

#include <functional>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim {

struct Shrunk {
  LayerSpec spec;
  int tests = 0;    ///< specs that were tried
  int shrinks = 0;  ///< of them, how many still failed and became the next
};

/// Makes one size after the other as small as it goes while `fails(spec)` holds, until none can be
/// made smaller. @pre fails(spec)
/// @post the spec is legal and fails; making any one size smaller makes it pass or illegal
[[nodiscard]] inline Shrunk shrink(const LayerSpec& spec,
                                   const std::function<bool(const LayerSpec&)>& fails) {
  Shrunk out{spec};
  const auto attempt = [&](const LayerSpec& candidate) {
    if (!violations(candidate).empty()) return false;
    ++out.tests;
    if (!fails(candidate)) return false;
    out.spec = candidate;
    ++out.shrinks;
    return true;
  };
  using Set = std::function<void(LayerSpec&, Index)>;
  using Get = std::function<Index(const LayerSpec&)>;
  std::vector<std::pair<Get, Set>> sizes{
      {[](const LayerSpec& s) { return s.qkv.hidden; },
       [](LayerSpec& s, Index v) { s.qkv.hidden = v; }},
      {[](const LayerSpec& s) { return s.tokens; }, [](LayerSpec& s, Index v) { s.tokens = v; }},
      {[](const LayerSpec& s) { return s.qkv.head_dim; },
       [](LayerSpec& s, Index v) { s.qkv.head_dim = v; }},
      {[](const LayerSpec& s) { return s.qkv.v_head_dim; },
       [](LayerSpec& s, Index v) { s.qkv.v_head_dim = v; }},
      {[](const LayerSpec& s) { return s.intermediate; },
       [](LayerSpec& s, Index v) { s.intermediate = v; }},
      {[](const LayerSpec& s) { return s.in; }, [](LayerSpec& s, Index v) { s.in = v; }},
      {[](const LayerSpec& s) { return s.out; }, [](LayerSpec& s, Index v) { s.out = v; }},
      {[](const LayerSpec& s) { return Index{s.tp}; },
       [](LayerSpec& s, Index v) { s.tp = static_cast<int>(v); }},
      {[](const LayerSpec& s) { return s.qkv.kv_heads; },
       [](LayerSpec& s, Index v) { s.qkv.kv_heads = v; }},
      {[](const LayerSpec& s) { return s.qkv.heads; },
       [](LayerSpec& s, Index v) { s.qkv.heads = v; }},
      // Heads, kv heads and ranks often move together only.
      {[](const LayerSpec& s) { return s.qkv.heads; },
       [](LayerSpec& s, Index v) { s.qkv.kv_heads = s.qkv.heads = v; }},
  };
  for (std::size_t k = 0; k < spec.parts.size(); ++k)
    sizes.push_back({[k](const LayerSpec& s) { return s.parts[k].rows; },
                     [k](LayerSpec& s, Index v) { s.parts[k].rows = v; }});

  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const auto& [get, set] : sizes) {
      const Index now = get(out.spec);
      for (Index v = 1; v < now; v = v < 16 ? v + 1 : v * 2) {
        LayerSpec candidate = out.spec;
        set(candidate, v);
        if (attempt(candidate)) {
          smaller = true;
          break;
        }
      }
    }
  }
  return out;
}

}  // namespace tpsim
