// SPDX-License-Identifier: MIT
// The gated MLP: down(silu(gate x) * (up x)), one all_reduce.
#pragma once

#include <tpsim/layers/linear.hpp>

namespace tpsim {

struct MlpShape {
  Index hidden = 0, intermediate = 0;
  bool bias = false;
};

[[nodiscard]] inline std::vector<MergedPart> gate_up(Index intermediate) {
  return {{"gate", intermediate}, {"up", intermediate}};
}

/// SwiGLU feed-forward: gate and up merged and column parallel, down row parallel on the same
/// columns, so that nothing is exchanged between them.
/// @post the columns of down on a rank are the rows of gate and of up there  (partners)
/// Source: nano-vllm `models/qwen3.py` Qwen3MLP; Shazeer, GLU Variants Improve Transformer (2020).
/// @tparam Down  the layer that multiplies down_proj
template <Backend B, class Down = RowParallelLinear<B>>
class GatedMLP {
 public:
  using Tensor = typename B::Tensor;

  MergedColumnParallelLinear<B> gate_up_proj;
  Down down_proj;

  GatedMLP(B& backend, Communicator& tp, const MlpShape& s)
      : gate_up_proj(backend, tp, s.hidden, gate_up(s.intermediate), {.bias = s.bias}),
        down_proj(backend, tp, s.intermediate, s.hidden, {.bias = s.bias}),
        backend_(&backend),
        width_(divide(s.intermediate, tp.size())) {}

  /// x [tokens, hidden], replicated -> [tokens, hidden], replicated
  [[nodiscard]] Tensor forward(const Tensor& x) {
    const Tensor y = gate_up_proj.forward(x);              // [tokens, gate_r | up_r]
    const Tensor gate = backend_->slice(y, 1, 0, width_);  // [tokens, intermediate / tp]
    const Tensor up = backend_->slice(y, 1, width_, width_);
    return down_proj.forward(backend_->mul(backend_->silu(gate), up));
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    const Tensor gate = full_linear(b, x, t, "gate_proj.");
    const Tensor up = full_linear(b, x, t, "up_proj.");
    return full_linear(b, b.mul(b.silu(gate), up), t, "down_proj.");
  }

 private:
  B* backend_;
  Index width_;
};

}  // namespace tpsim
