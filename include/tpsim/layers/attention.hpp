// SPDX-License-Identifier: MIT
// Attention cut by head: a rank projects, turns, caches and attends its own heads, and one sum
// over the ranks joins them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tpsim/layers/attention_options.hpp>
#include <tpsim/layers/batch.hpp>
#include <tpsim/layers/head_vector.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/parallel_norm.hpp>

namespace tpsim {

/// The classes that attention is made of; a variation puts others in their place.
struct AttentionLayers {
  template <class B>
  using Qkv = QKVParallelLinear<B>;
  template <class B>
  using Row = RowParallelLinear<B>;
  template <class B>
  using OneHeadNorm = RMSNorm<B>;
  template <class B>
  using HeadNorm = ParallelRMSNorm<B>;
  template <class B>
  using HeadVector = tpsim::HeadVector<B>;
};

/// Rank r holds the query heads [r h/tp, (r+1) h/tp) and the kv heads that they read; when there
/// are fewer kv heads than ranks, several ranks hold the same one.
/// @pre  query heads divide by tp; kv heads divide by tp, or tp by them       (divide)
/// @post a query head meets the kv head h / (heads / kv_heads)                (heads)
/// @post the columns of o_proj on a rank are its query heads' values          (partners)
/// @post one all_reduce; one more for each full-width norm of q and k         (state)
/// Source: nano-vllm `models/qwen3.py`, `layers/attention.py`; KV replication as in vLLM.
/// @tparam Layers  the classes that it is made of
template <DecoderBackend B, class Layers = AttentionLayers>
class ParallelAttention {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;
  using OneHeadNorm = typename Layers::template OneHeadNorm<B>;
  using HeadNorm = typename Layers::template HeadNorm<B>;

  typename Layers::template Qkv<B> qkv_proj;
  typename Layers::template Row<B> o_proj;
  std::optional<OneHeadNorm> q_norm, k_norm;                     ///< per head: [head_dim], whole
  std::optional<HeadNorm> q_norm_full, k_norm_full;              ///< full width: cut by head
  std::optional<typename Layers::template HeadVector<B>> sinks;  ///< [local heads]

  ParallelAttention(B& backend, Communicator& tp, const AttentionShape& s)
      : qkv_proj(backend, tp, (require(attention_violations(s, tp.size())), s.qkv),
                 LinearOptions{s.qkv_bias, false}),
        o_proj(backend, tp, s.qkv.heads * s.qkv.v_head(), s.qkv.hidden,
               RowOptions{s.o_bias, !s.reduce_results, true, s.reduce_results}),
        backend_(&backend),
        comm_(&tp),
        shape_(s) {
    const Index replicas = kv_head_replicas(s.qkv.kv_heads, tp.size());
    if (s.qk_norm == QkNorm::per_head) {
      q_norm.emplace(backend, tp, NormShape{s.qkv.head_dim, s.norm_eps});
      k_norm.emplace(backend, tp, NormShape{s.qkv.head_dim, s.norm_eps});
    } else if (s.qk_norm == QkNorm::full_width) {
      q_norm_full.emplace(backend, tp, HeadNormShape{s.qkv.heads, s.qkv.head_dim, 1, s.norm_eps});
      k_norm_full.emplace(backend, tp,
                          HeadNormShape{s.qkv.kv_heads, s.qkv.head_dim, replicas, s.norm_eps});
    }
    if (s.sinks) sinks.emplace(backend, tp, s.qkv.heads);
  }
  virtual ~ParallelAttention() = default;

  /// Query and kv heads of this rank.
  [[nodiscard]] Index num_heads() const { return qkv_proj.num_heads(); }
  [[nodiscard]] Index num_kv_heads() const { return qkv_proj.num_kv_heads(); }

  /// f(name, layer) for each layer that has parameters.
  template <class F>
  void for_each_layer(F&& f) {
    f("qkv_proj.", qkv_proj);
    f("o_proj.", o_proj);
    if (q_norm) f("q_norm.", *q_norm);
    if (k_norm) f("k_norm.", *k_norm);
    if (q_norm_full) f("q_norm.", *q_norm_full);
    if (k_norm_full) f("k_norm.", *k_norm_full);
    if (sinks) f("sinks.", *sinks);
  }
  /// x [tokens, hidden], replicated -> [tokens, hidden], replicated; partial, and without its bias,
  /// when reduce_results is off. The cache is this rank's and this layer's.
  [[nodiscard]] Tensor forward(const Tensor& x, const Batch& batch, KvCache<B>& cache) {
    const Tensor qkv = qkv_proj.forward(x);  // [tokens, q_r | k_r | v_r]
    const Index d = shape_.qkv.head_dim, m = shape_.qkv.v_head();
    const Index q_width = num_heads() * d, kv_width = num_kv_heads() * d;
    Tensor q = normed(backend_->slice(qkv, 1, 0, q_width), q_norm, q_norm_full);
    Tensor k = normed(backend_->slice(qkv, 1, q_width, kv_width), k_norm, k_norm_full);
    const Tensor v = backend_->slice(qkv, 1, q_width + kv_width, num_kv_heads() * m);
    if (shape_.rope) {
      q = backend_->rope(q, positions(batch), d, *shape_.rope);
      k = backend_->rope(k, positions(batch), d, *shape_.rope);
    }
    std::vector<Tensor> heads;  // of each sequence [its tokens, local heads v_head_dim]
    Index row = 0;
    for (const SequenceStep& step : batch.steps()) {
      const auto& kept = cache.append(*backend_, step, backend_->slice(k, 0, row, step.tokens),
                                      backend_->slice(v, 0, row, step.tokens));
      heads.push_back(backend_->attention(backend_->slice(q, 0, row, step.tokens), kept.k, kept.v,
                                          spec(step), sinks ? &sinks->weight : nullptr));
      row += step.tokens;
    }
    return o_proj.forward(join_tokens(*backend_, std::move(heads)));
  }

  /// x: the whole sequences of `lengths`, one after the other. Tensors: PREFIXq_proj.weight,
  /// k_proj, v_proj, o_proj; q_norm.weight, k_norm.weight; sinks.weight.
  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const std::vector<Index>& lengths,
                                   const FullParams<B>& t, const AttentionShape& s,
                                   const std::string& prefix = "") {
    const Index d = s.qkv.head_dim;
    std::vector<Index> positions;
    for (const Index n : lengths)
      for (Index p = 0; p < n; ++p) positions.push_back(p);
    const auto projected = [&](const std::string& name) {
      Tensor y = full_linear(b, x, t, prefix + name + "_proj.");
      if (s.qk_norm != QkNorm::none && name != "v")
        y = RMSNorm<B>::full(b, y, t.at(prefix + name + "_norm.weight"), s.norm_eps);
      return s.rope && name != "v" ? b.rope(y, positions, d, *s.rope) : std::move(y);
    };
    const Tensor q = projected("q"), k = projected("k"), v = projected("v");
    AttentionSpec spec{s.qkv.heads, s.qkv.kv_heads, d, s.qkv.v_head(), s.scale_dim.value_or(d), 0,
                       s.window,    std::nullopt};
    if (s.alibi) spec.alibi = Alibi{0, s.qkv.heads};
    std::vector<Tensor> out;
    Index row = 0;
    for (const Index n : lengths) {
      out.push_back(b.attention(b.slice(q, 0, row, n), b.slice(k, 0, row, n), b.slice(v, 0, row, n),
                                spec, s.sinks ? &t.at(prefix + "sinks.weight") : nullptr));
      row += n;
    }
    return full_linear(b, join_tokens(b, std::move(out)), t, prefix + "o_proj.");
  }

 protected:
  /// Global number of this rank's first query head.
  [[nodiscard]] Index first_head() const { return comm_->rank() * num_heads(); }
  [[nodiscard]] virtual std::vector<Index> positions(const Batch& batch) const {
    return batch.positions();
  }
  [[nodiscard]] virtual AttentionSpec spec(const SequenceStep& step) const {
    AttentionSpec out{num_heads(),
                      num_kv_heads(),
                      shape_.qkv.head_dim,
                      shape_.qkv.v_head(),
                      shape_.scale_dim.value_or(shape_.qkv.head_dim),
                      step.past,
                      shape_.window,
                      std::nullopt};
    if (shape_.alibi) out.alibi = Alibi{first_head(), shape_.qkv.heads};
    return out;
  }

  B* backend_;
  Communicator* comm_;
  AttentionShape shape_;

 private:
  [[nodiscard]] Tensor normed(Tensor x, std::optional<OneHeadNorm>& per_head,
                              std::optional<HeadNorm>& full_width) {
    if (per_head) return per_head->forward(x);
    if (full_width) return full_width->forward(x);
    return x;
  }
};

}  // namespace tpsim
