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

namespace detail {

/// The part of a head that turns shrinks with it, and stays even.
inline void set_head_dim(LayerSpec& s, Index v) {
  s.qkv.head_dim = v;
  auto& rope = s.decoder.attention.rope;
  if (rope) rope->rotary_dim = std::min(rope->rotary_dim, v / 2 * 2);
}

/// Something that a decoder can do without.
struct Extra {
  std::function<bool(const LayerSpec&)> there;
  std::function<void(LayerSpec&)> leave_out;
};
[[nodiscard]] inline const std::vector<Extra>& decoder_extras() {
  static const std::vector<Extra> all{
      {[](const LayerSpec& s) { return s.chunk != 0; }, [](LayerSpec& s) { s.chunk = 0; }},
      {[](const LayerSpec& s) { return s.decoder.attention.window.has_value(); },
       [](LayerSpec& s) { s.decoder.attention.window.reset(); }},
      {[](const LayerSpec& s) { return s.decoder.attention.alibi; },
       [](LayerSpec& s) { s.decoder.attention.alibi = false; }},
      {[](const LayerSpec& s) { return s.decoder.attention.sinks; },
       [](LayerSpec& s) { s.decoder.attention.sinks = false; }},
      {[](const LayerSpec& s) { return s.decoder.attention.qk_norm != QkNorm::none; },
       [](LayerSpec& s) { s.decoder.attention.qk_norm = QkNorm::none; }},
      {[](const LayerSpec& s) { return s.decoder.attention.qkv_bias; },
       [](LayerSpec& s) { s.decoder.attention.qkv_bias = false; }},
      {[](const LayerSpec& s) { return s.decoder.attention.o_bias; },
       [](LayerSpec& s) { s.decoder.attention.o_bias = false; }},
      {[](const LayerSpec& s) { return s.decoder.mlp_bias; },
       [](LayerSpec& s) { s.decoder.mlp_bias = false; }},
      {[](const LayerSpec& s) { return s.decoder.parallel_residual; },
       [](LayerSpec& s) { s.decoder.parallel_residual = false; }},
      {[](const LayerSpec& s) { return s.decoder.norm != NormKind::rms; },
       [](LayerSpec& s) { s.decoder.norm = NormKind::rms; }},
      {[](const LayerSpec& s) { return s.decoder.activation != Activation::silu; },
       [](LayerSpec& s) { s.decoder.activation = Activation::silu; }}};
  return all;
}

}  // namespace detail

/// Makes one size after the other as small as it goes while `fails(spec)` holds, until none can be
/// made smaller. @pre fails(spec)
/// Of a decoder, what it can do without and still fail goes first.
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
      {[](const LayerSpec& s) { return s.qkv.head_dim; }, detail::set_head_dim},
      {[](const LayerSpec& s) { return s.qkv.v_head_dim; },
       [](LayerSpec& s, Index v) { s.qkv.v_head_dim = v; }},
      {[](const LayerSpec& s) { return s.intermediate; },
       [](LayerSpec& s, Index v) { s.intermediate = v; }},
      {[](const LayerSpec& s) { return is_vocab_layer(s.layer) ? s.vocab : 0; },
       [](LayerSpec& s, Index v) { s.vocab = v; }},
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
      // So do the two sides of a square weight.
      {[](const LayerSpec& s) { return s.in == s.out ? s.in : 0; },
       [](LayerSpec& s, Index v) { s.in = s.out = v; }},
  };
  if (is_decoder_layer(spec.layer)) {
    sizes.push_back(
        {[](const LayerSpec& s) { return s.chunk; }, [](LayerSpec& s, Index v) { s.chunk = v; }});
    sizes.push_back({[](const LayerSpec& s) { return s.decoder.attention.window.value_or(0); },
                     [](LayerSpec& s, Index v) { s.decoder.attention.window = v; }});
    sizes.push_back({[](const LayerSpec& s) {
                       const auto& rope = s.decoder.attention.rope;
                       return rope ? rope->rotary_dim : 0;
                     },
                     [](LayerSpec& s, Index v) { s.decoder.attention.rope->rotary_dim = v; }});
    for (const detail::Extra& extra : detail::decoder_extras()) {
      LayerSpec candidate = out.spec;
      extra.leave_out(candidate);
      if (extra.there(out.spec)) (void)attempt(candidate);
    }
  }
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
