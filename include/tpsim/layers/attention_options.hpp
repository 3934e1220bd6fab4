// SPDX-License-Identifier: MIT
// What kind of attention a decoder has, and the rules that decide which tp it can have.
#pragma once

#include <optional>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/layers/linear_options.hpp>

namespace tpsim {

/// Norms of q and k before they turn.
enum class QkNorm : std::uint8_t {
  none,
  per_head,    ///< one weight of head_dim for all heads (qwen3)
  full_width,  ///< over all heads of the model together (olmo2)
};

/// Sizes are of the whole model.
struct AttentionShape {
  QkvShape qkv;
  bool qkv_bias = false, o_bias = false;
  QkNorm qk_norm = QkNorm::none;
  double norm_eps = 1e-6;        ///< of the q and k norms
  std::optional<RopeSpec> rope;  ///< rotary positions
  std::optional<Index> window;   ///< positions that a token sees, itself included
  bool alibi = false;
  bool sinks = false;              ///< a learned logit for each query head
  std::optional<Index> scale_dim;  ///< the integer under the root; head_dim when it is not set
  bool reduce_results = true;      ///< false: the caller sums the partial results and adds the bias
};

[[nodiscard]] inline std::vector<Violation> attention_violations(const AttentionShape& s,
                                                                 Index tp) {
  std::vector<Violation> v = qkv_violations(s.qkv, tp);
  if (s.rope)
    for (Violation& broken : rope_violations(*s.rope, s.qkv.head_dim))
      v.push_back(std::move(broken));
  if (s.window) add_unless_positive(v, *s.window, "the window");
  if (s.scale_dim) add_unless_positive(v, *s.scale_dim, "the scale's dimension");
  if (s.qk_norm != QkNorm::none && !(s.norm_eps >= 0))
    v.push_back({"divide", "a norm's epsilon cannot be negative"});
  return v;
}

}  // namespace tpsim
