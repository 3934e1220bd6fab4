// SPDX-License-Identifier: MIT
// The sizes of a whole decoder: what the tp rules and the costs of a model depend on.
#pragma once

#include <string>

#include <tpsim/core/quantization.hpp>
#include <tpsim/layers/decoder_options.hpp>

namespace tpsim {

/// A decoder of equal layers: attention, then a dense MLP or experts. heads * head_dim need not be
/// hidden. A kv head is read by heads / kv_heads query heads.
struct ModelShape {
  std::string name;
  Index hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false;
  Index layers = 0, vocab = 0;
  bool tied = false;  ///< lm_head is the embedding
  DType dtype = DType::bf16;
  bool o_bias = false, mlp_bias = false;
  bool gated = true;        ///< gate, up and down; else up and down
  bool layer_norm = false;  ///< norms have a bias too
  bool fused = false;       ///< qkv and gate_up are one tensor each on disk, [q|k|v] and [gate|up]
  bool sinks = false;       ///< a learned logit for each query head
  QkNorm qk_norm = QkNorm::none;
  DecoderSums sums;               ///< all_reduces of a layer
  Index experts = 0;              ///< 0: every layer has a dense MLP
  Index expert_intermediate = 0;  ///< width of one expert
  Index experts_per_token = 0;    ///< that the router chooses
  Index dense_layers = 0;         ///< of a model with experts: layers with a dense MLP instead
  Quantization quantization;

  [[nodiscard]] Index group() const { return heads / kv_heads; }
  [[nodiscard]] Index moe_layers() const { return experts == 0 ? 0 : layers - dense_layers; }
  [[nodiscard]] Index mlp_layers() const { return layers - moe_layers(); }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

/// About how many weights the model has; a double, so that no size overflows it.
[[nodiscard]] inline double weight_estimate(const ModelShape& m) {
  const auto d = [](Index n) { return static_cast<double>(n); };
  const double attention = 2 * d(m.heads + m.kv_heads) * d(m.head_dim);
  const double dense = 3 * d(m.intermediate);
  const double experts = 3 * d(m.expert_intermediate) * d(m.experts);
  return d(m.hidden) * (d(m.layers) * attention + d(m.mlp_layers()) * dense +
                        d(m.moe_layers()) * experts + 2 * d(m.vocab));
}

/// Up to this many weights, sums of their bytes are far from overflow.
inline constexpr double countable_weights = 1ULL << 45U;

}  // namespace tpsim
