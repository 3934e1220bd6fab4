// SPDX-License-Identifier: MIT
// The MLP of a decoder, one all_reduce: gated, down(f(gate x) * (up x)), or plain, down(f(up x)).
#pragma once

#include <string>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/layers/linear.hpp>

namespace tpsim {

struct MlpShape {
  Index hidden = 0, intermediate = 0;
  bool bias = false;
  Activation activation = Activation::silu;
  bool reduce_results = true;  ///< false: the caller sums the partial results and adds the bias
};

/// SwiGLU feed-forward: gate and up merged and column parallel, down row parallel on the same
/// columns, so that nothing is exchanged between them.
/// @post the columns of down on a rank are the rows of gate and of up there  (partners)
/// Source: nano-vllm `models/qwen3.py` Qwen3MLP; Shazeer, GLU Variants Improve Transformer (2020).
/// @tparam Down, GateUp  the layers that multiply down_proj, and gate_proj with up_proj
template <Backend B, class Down = RowParallelLinear<B>,
          class GateUp = MergedColumnParallelLinear<B>>
class GatedMLP {
 public:
  using Tensor = typename B::Tensor;

  GateUp gate_up_proj;
  Down down_proj;

  GatedMLP(B& backend, Communicator& tp, const MlpShape& s)
      : gate_up_proj(backend, tp, s.hidden, gate_up(s.intermediate), {.bias = s.bias}),
        down_proj(backend, tp, s.intermediate, s.hidden,
                  RowOptions{s.bias, !s.reduce_results, true, s.reduce_results}),
        backend_(&backend),
        width_(divide(s.intermediate, tp.size())),
        activation_(s.activation) {}

  /// f(name, layer) for each layer that has parameters.
  template <class F>
  void for_each_layer(F&& f) {
    f("gate_up_proj.", gate_up_proj);
    f("down_proj.", down_proj);
  }

  /// x [tokens, hidden], replicated -> [tokens, hidden], replicated; partial, and without its bias,
  /// when reduce_results is off
  [[nodiscard]] Tensor forward(const Tensor& x) {
    const Tensor y = gate_up_proj.forward(x);              // [tokens, gate_r | up_r]
    const Tensor gate = backend_->slice(y, 1, 0, width_);  // [tokens, intermediate / tp]
    const Tensor up = backend_->slice(y, 1, width_, width_);
    return down_proj.forward(backend_->mul(activate(*backend_, activation_, gate), up));
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t,
                                   Activation activation = Activation::silu,
                                   const std::string& prefix = "") {
    const Tensor gate = full_linear(b, x, t, prefix + "gate_proj.");
    const Tensor up = full_linear(b, x, t, prefix + "up_proj.");
    return full_linear(b, b.mul(activate(b, activation, gate), up), t, prefix + "down_proj.");
  }

 private:
  B* backend_;
  Index width_;
  Activation activation_;
};

/// The feed-forward of GPT: up column parallel, down row parallel on the same columns.
/// @post the columns of down on a rank are the rows of up there  (partners)
/// Source: Vaswani et al. (2017); Megatron `transformer/mlp.py`.
template <Backend B, class Down = RowParallelLinear<B>, class Up = ColumnParallelLinear<B>>
class PlainMLP {
 public:
  using Tensor = typename B::Tensor;

  Up up_proj;
  Down down_proj;

  PlainMLP(B& backend, Communicator& tp, const MlpShape& s)
      : up_proj(backend, tp, s.hidden, s.intermediate, ColumnOptions{.bias = s.bias}),
        down_proj(backend, tp, s.intermediate, s.hidden,
                  RowOptions{s.bias, !s.reduce_results, true, s.reduce_results}),
        backend_(&backend),
        activation_(s.activation) {}

  template <class F>
  void for_each_layer(F&& f) {
    f("up_proj.", up_proj);
    f("down_proj.", down_proj);
  }
  /// As GatedMLP::forward.
  [[nodiscard]] Tensor forward(const Tensor& x) {
    return down_proj.forward(activate(*backend_, activation_, up_proj.forward(x)));
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t,
                                   Activation activation, const std::string& prefix = "") {
    const Tensor up = full_linear(b, x, t, prefix + "up_proj.");
    return full_linear(b, activate(b, activation, up), t, prefix + "down_proj.");
  }

 private:
  B* backend_;
  Activation activation_;
};

}  // namespace tpsim
