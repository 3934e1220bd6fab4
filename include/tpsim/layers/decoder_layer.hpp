// SPDX-License-Identifier: MIT
// One layer of a decoder: attention and MLP around a residual stream that every rank holds whole.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <tpsim/layers/attention.hpp>
#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layers/load.hpp>

namespace tpsim {

/// The classes that a decoder is made of; a variation puts others in their place.
struct DecoderLayers {
  template <class B>
  using Attention = ParallelAttention<B>;
  template <class B>
  using Gated = GatedMLP<B>;
  template <class B>
  using Plain = PlainMLP<B>;
};

/// What goes from layer to layer: the stream, and the last result that was not added to it yet, so
/// that the next norm can add it without rounding in between.
template <class Tensor>
struct Stream {
  Tensor residual;
  std::optional<Tensor> update = {};
};

/// The stream with everything added to it.
template <DecoderBackend B>
[[nodiscard]] typename B::Tensor settled(B& b, Stream<typename B::Tensor> s) {
  return s.update ? b.add(*s.update, s.residual) : std::move(s.residual);
}

/// Sequential: x + attention(norm(x)), then that + mlp(norm(that)): two all_reduces. Parallel:
/// x + attention(norm1(x)) + mlp(norm2(x)), whose partial sums are added and summed over the ranks
/// together: one all_reduce, then both biases.
/// @post the result is whole and equal on all ranks  (state)
/// Source: nano-vllm `models/qwen3.py`; parallel: gpt_neox, falcon (vLLM `models/falcon.py`).
template <DecoderBackend B, class Layers = DecoderLayers>
class DecoderLayer {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;
  using Attention = typename Layers::template Attention<B>;
  using Gated = typename Layers::template Gated<B>;
  using Plain = typename Layers::template Plain<B>;

  StreamNorm<B> input_layernorm, post_attention_layernorm;
  Attention self_attn;
  std::optional<Gated> gated_mlp;
  std::optional<Plain> plain_mlp;

  DecoderLayer(B& backend, Communicator& tp, const DecoderShape& s)
      : input_layernorm(backend, tp, s.norm,
                        (require(decoder_violations(s, tp.size())), stream_norm(s))),
        post_attention_layernorm(backend, tp, s.norm, stream_norm(s)),
        self_attn(backend, tp, attention_of(s)),
        backend_(&backend),
        comm_(&tp),
        parallel_(s.parallel_residual) {
    const MlpShape mlp{s.hidden(), s.intermediate, s.mlp_bias, s.activation, !parallel_};
    if (s.gated)
      gated_mlp.emplace(backend, tp, mlp);
    else
      plain_mlp.emplace(backend, tp, mlp);
  }

  /// f(name, layer) for each layer that has parameters: "self_attn.qkv_proj.", ...
  template <class F>
  void for_each_layer(F&& f) {
    const auto under = [&](const std::string& prefix) {
      return [&f, prefix](const std::string& name, auto& layer) { f(prefix + name, layer); };
    };
    input_layernorm.for_each_layer(under("input_layernorm."));
    self_attn.for_each_layer(under("self_attn."));
    post_attention_layernorm.for_each_layer(under("post_attention_layernorm."));
    if (gated_mlp) gated_mlp->for_each_layer(under("mlp."));
    if (plain_mlp) plain_mlp->for_each_layer(under("mlp."));
  }

  /// residual, update: [tokens, hidden]; the cache is this layer's.
  [[nodiscard]] Stream<Tensor> forward(Stream<Tensor> x, const Batch& batch, KvCache<B>& cache) {
    if (parallel_) return parallel(settled(*backend_, std::move(x)), batch, cache);
    Normed<Tensor> in = next(input_layernorm, std::move(x));
    Tensor attended = self_attn.forward(in.x, batch, cache);
    Normed<Tensor> out = add_and_norm(*backend_, post_attention_layernorm, attended, in.residual);
    return {std::move(out.residual), mlp(out.x)};
  }

  /// x: whole sequences of `lengths`; tensors as for_each_layer names them, q_proj, k_proj, v_proj,
  /// gate_proj and up_proj apart.
  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const std::vector<Index>& lengths,
                                   const FullParams<B>& t, const DecoderShape& s,
                                   const std::string& prefix = "") {
    const auto norm = [&](const Tensor& y, const std::string& name) {
      return StreamNorm<B>::full(b, y, s.norm, s.norm_eps, t, prefix + name);
    };
    const auto mlp = [&](const Tensor& y) {
      return s.gated ? GatedMLP<B>::full(b, y, t, s.activation, prefix + "mlp.")
                     : PlainMLP<B>::full(b, y, t, s.activation, prefix + "mlp.");
    };
    const Tensor attended = ParallelAttention<B>::full(b, norm(x, "input_layernorm."), lengths, t,
                                                       s.attention, prefix + "self_attn.");
    const Tensor stream = b.add(x, attended);
    return b.add(stream, mlp(norm(s.parallel_residual ? x : stream, "post_attention_layernorm.")));
  }

 protected:
  [[nodiscard]] Tensor mlp(const Tensor& x) {
    return gated_mlp ? gated_mlp->forward(x) : plain_mlp->forward(x);
  }
  [[nodiscard]] Stream<Tensor> parallel(Tensor x, const Batch& batch, KvCache<B>& cache) {
    const Tensor attended = self_attn.forward(input_layernorm.forward(x), batch, cache);
    const Tensor fed = mlp(post_attention_layernorm.forward(x));
    Tensor y = backend_->add(attended, fed);
    if (comm_->size() > 1) y = all_reduce(*backend_, *comm_, std::move(y));
    const Param* biases[] = {
        self_attn.o_proj.skipped_bias(),
        gated_mlp ? gated_mlp->down_proj.skipped_bias() : plain_mlp->down_proj.skipped_bias()};
    for (const Param* bias : biases)
      if (bias != nullptr) y = backend_->add_bias(y, *bias);
    return {std::move(x), std::move(y)};
  }
  /// The norm of the stream, after adding what is still to be added.
  [[nodiscard]] Normed<Tensor> next(const StreamNorm<B>& norm, Stream<Tensor> x) {
    if (x.update) return add_and_norm(*backend_, norm, *x.update, x.residual);
    Tensor y = norm.forward(x.residual);
    return {std::move(y), std::move(x.residual)};
  }

  B* backend_;
  Communicator* comm_;
  bool parallel_;

 private:
  static NormShape stream_norm(const DecoderShape& s) { return {s.hidden(), s.norm_eps}; }
  static AttentionShape attention_of(const DecoderShape& s) {
    AttentionShape a = s.attention;
    a.reduce_results = !s.parallel_residual;
    return a;
  }
};

}  // namespace tpsim
