// SPDX-License-Identifier: MIT
// Bodies of tp_cost.hpp.
#pragma once

#include <tpsim/verify/tp_cost.hpp>

namespace tpsim {

inline std::vector<ModelWeight> model_weights(const ModelShape& m, Engine engine) {
  using enum WeightCut;
  std::vector<ModelWeight> all;
  const Index q_rows = m.heads * m.head_dim, kv_rows = m.kv_heads * m.head_dim, L = m.layers;
  const bool q_bias = m.qkv_bias, quant = m.quantization.method != QuantMethod::none;
  // mxfp4 has the experts alone.
  const bool dense_quant = quant && m.quantization.method != QuantMethod::mxfp4;
  // x W^T + b: the bias of a row-parallel weight is whole on every rank.
  const auto linear = [&](const std::string& name, Index count, Index rows, Index cols,
                          WeightCut cut, int dim, bool quantised, bool bias) {
    all.push_back({name + ".weight", count, rows, cols, cut, dim, quantised});
    if (bias) all.push_back({name + ".bias", count, rows, 1, dim == 0 ? cut : whole, 0, false});
  };
  const WeightCut o_cut = gathers_fused(m, engine) ? even : heads;
  if (gathers_fused(m, engine)) {
    linear("qkv", L, q_rows + 2 * kv_rows, m.hidden, even, 0, dense_quant, q_bias);
  } else {
    linear("q", L, q_rows, m.hidden, heads, 0, dense_quant, q_bias);
    if (engine == Engine::megatron)  // k and v together, so that a cut inside a head comes out even
      linear("kv", L, 2 * kv_rows, m.hidden, even, 0, dense_quant, q_bias);
    else
      linear("k and v", 2 * L, kv_rows, m.hidden, kv, 0, dense_quant, q_bias);
  }
  linear("o", L, m.hidden, q_rows, o_cut, 1, dense_quant, m.o_bias);
  if (m.sinks) all.push_back({"sinks", L, m.heads, 1, even, 0, false});

  const WeightCut inner = engine == Engine::transformers && !m.fused ? chunks : even;
  const Index ups = m.gated ? 2 : 1;
  const auto mlp = [&](const std::string& name, Index count, Index width, WeightCut cut, bool qz) {
    if (count == 0) return;
    linear(name + "up", ups * count, width, m.hidden, cut, 0, qz, m.mlp_bias);
    linear(name + "down", count, m.hidden, width, cut, 1, qz, m.mlp_bias);
  };
  mlp("mlp ", m.mlp_layers(), m.intermediate, inner, dense_quant);
  if (m.moe_layers() > 0) {
    const bool by_block = m.quantization.method == QuantMethod::mxfp4;
    const std::size_t first = all.size();
    mlp("expert ", m.moe_layers() * m.experts, m.expert_intermediate, by_block ? blocks : inner,
        quant);
    for (std::size_t k = first; k < all.size(); ++k) all[k].role = WeightRole::expert;
    linear("router", m.moe_layers(), m.experts, m.hidden, whole, 0, false, m.mlp_bias);
  }
  const Index norms = (2 * L + 1) * (m.layer_norm ? 2 : 1);
  all.push_back({"norms", norms, m.hidden, 1, whole, 0, false});
  if (m.qk_norm == QkNorm::per_head)
    all.push_back({"q and k norms", 2 * L, m.head_dim, 1, whole, 0, false});
  if (m.qk_norm == QkNorm::full_width) {
    all.push_back({"q norms", L, q_rows, 1, heads, 0, false});
    all.push_back({"k norms", L, kv_rows, 1, kv, 0, false});
  }
  // transformers leaves the embedding whole, and with it a tied lm_head.
  all.push_back({"embedding", 1, m.vocab, m.hidden, engine == Engine::transformers ? whole : vocab,
                 0, false, WeightRole::embedding});
  if (!m.tied) all.push_back({"lm_head", 1, m.vocab, m.hidden, vocab, 0, false, WeightRole::head});
  return all;
}

inline Index weight_bytes(const ModelShape& m, Index rows, Index cols, bool quantised) {
  const Quantization& q = m.quantization;
  const Index element = bytes_of(m.dtype);
  const auto up = [](Index n, Index unit) { return round_up(n, unit) / unit; };
  switch (quantised ? q.method : QuantMethod::none) {
    case QuantMethod::none:
      return rows * cols * element;
    case QuantMethod::gptq:
    case QuantMethod::awq: {
      const Index groups = q.group_size > 0 ? up(cols, q.group_size) : 1;
      const Index order = q.method == QuantMethod::gptq ? 4 * cols : 0;  // g_idx
      return up(rows * cols * q.bits, 8) + groups * (2 * rows + up(rows * q.bits, 8)) + order;
    }
    case QuantMethod::fp8:
      return rows * cols + (q.block_n > 0 ? 4 * up(rows, q.block_n) * up(cols, q.block_k) : 4);
    case QuantMethod::mxfp4:
      return rows * cols / 2 + up(rows * cols, mxfp4_block);
  }
  return 0;
}

inline Index checkpoint_bytes(const ModelShape& m) {
  Index sum = 0;
  for (const ModelWeight& w : model_weights(m, Engine::vllm))
    sum += w.count * weight_bytes(m, w.rows, w.cols, w.quantised);
  return sum;
}

namespace detail {

// Rows (or columns) of `w` on `rank`, where the whole has `n`.
inline Index local_extent(const ModelShape& m, Engine engine, const ModelWeight& w, Index n,
                          Index tp, Index rank) {
  const auto chunk = [&](Index total) {
    const Index each = (total + tp - 1) / tp;
    return std::clamp<Index>(total - rank * each, 0, each);
  };
  switch (w.cut) {
    case WeightCut::whole:
      return n;
    case WeightCut::even:
    case WeightCut::heads:
      return n / tp;
    case WeightCut::kv:
      return local_kv_heads(m.kv_heads, tp) * m.head_dim;
    case WeightCut::chunks:
      return chunk(n);
    case WeightCut::blocks:
      return chunk(n / mxfp4_block) * mxfp4_block;
    case WeightCut::vocab:
      return padded_vocab(n, engine, tp) / tp;
  }
  return n;
}

// A weight on one rank: `count` of [rows, cols], each of `bytes`.
struct RankWeight {
  const ModelWeight* weight = nullptr;
  Index count = 0, rows = 0, cols = 0, bytes = 0;
  Index experts = 0;  ///< of an expert's weight: experts of a layer that the rank has
  bool replicated = false;
};

[[nodiscard]] constexpr Index ep_rank_of(Engine engine, Index tp, Index rank) {
  return engine == Engine::megatron ? rank / tp : rank;
}

// All weights on `rank`. A tp group's ranks lie together, as those of a node do.
inline std::vector<RankWeight> rank_weights(const ModelShape& m, Engine engine,
                                            const std::vector<ModelWeight>& all, Index tp, Index ep,
                                            Index rank) {
  std::vector<RankWeight> out;
  const bool groups = ranks_of(engine, tp, ep) > tp;
  for (const ModelWeight& w : all) {
    const bool expert = w.role == WeightRole::expert, shared_out = expert && ep > 0;
    const Index over = expert ? expert_tp(engine, tp, ep) : tp;
    const auto extent = [&](int dim, Index n) {
      return w.tp_dim == dim && over > 1 ? local_extent(m, engine, w, n, tp, rank % tp) : n;
    };
    RankWeight mine{&w, w.count, extent(0, w.rows), extent(1, w.cols)};
    if (expert) {
      mine.experts = local_experts(m.experts, ep, ep_rank_of(engine, tp, rank));
      mine.count = w.count / m.experts * mine.experts;
    }
    mine.bytes = weight_bytes(m, mine.rows, mine.cols, w.quantised);
    const bool whole = w.cut == WeightCut::whole && over > 1;
    const bool kv = w.cut == WeightCut::kv && tp > m.kv_heads;
    mine.replicated = whole || kv || (groups && !shared_out);
    out.push_back(mine);
  }
  return out;
}

// What one forward calls.
class Collectives {
 public:
  Collectives(const ModelShape& m, Engine engine, int tp, int ep)
      : m_(m), engine_(engine), tp_(tp), ep_(ep) {}

  void add_to(TpCost& cost) {
    cost_ = &cost;
    // With more ranks than one tp group has, tokens go to the ranks of their experts and back.
    const Index moe = ranks_of(engine_, tp_, ep_) > tp_ ? m_.moe_layers() : 0;
    if (tp_ > 1) sums(moe), gathers();
    if (moe > 0) dispatch(moe);
    if (tp_ == 1) return;
    const Index before = cost_->wire_bytes;
    const bool to_root = engine_ == Engine::nano_vllm || engine_ == Engine::vllm;
    add(to_root ? CollectiveOp::gather : CollectiveOp::all_gather, 1,
        padded_vocab(m_.vocab, engine_, tp_), tp_);
    cost_->logits_wire_bytes = cost_->wire_bytes - before;
  }

 private:
  void add(CollectiveOp op, Index count, Index elements, int size) {
    const Index bytes = elements * bytes_of(m_.dtype);
    cost_->collectives.push_back({std::string(name(op)), count, bytes});
    cost_->wire_bytes += count * wire_bytes(op, bytes, size);
  }
  void sums(Index dispatched) {
    const bool embedding_cut = engine_ != Engine::transformers;
    // The rowwise style of transformers sums after each row-parallel layer, whatever the residual.
    const Index sums = engine_ == Engine::transformers ? 2 : m_.sums.stream;
    add(CollectiveOp::all_reduce, sums * m_.layers - dispatched + (embedding_cut ? 1 : 0),
        m_.hidden, tp_);
    if (m_.sums.statistics > 0)
      add(CollectiveOp::all_reduce, m_.sums.statistics * m_.layers, 1, tp_);
  }
  void gathers() {
    const Index qkv = (m_.heads + 2 * m_.kv_heads) * m_.head_dim;
    if (engine_ == Engine::megatron && tp_ > m_.kv_heads)
      add(CollectiveOp::all_gather, m_.layers, qkv, tp_);
    if (!gathers_fused(m_, engine_)) return;
    add(CollectiveOp::all_gather, m_.layers, qkv, tp_);
    add(CollectiveOp::all_gather, m_.layers, 2 * m_.intermediate, tp_);
  }
  // vLLM: the ranks of a tp group take a part of its tokens each and gather the results. Megatron:
  // what arrives at an expert is gathered over the ranks that cut its width, and summed.
  void dispatch(Index moe) {
    const Index sent = m_.experts_per_token * m_.hidden;
    add(CollectiveOp::all_to_all, 2 * moe, sent, ep_);
    if (tp_ == 1) return;
    const bool width = expert_tp(engine_, tp_, ep_) > 1;
    add(CollectiveOp::all_gather, moe, width ? sent : m_.hidden, tp_);
    if (width) add(CollectiveOp::reduce_scatter, moe, sent, tp_);
  }

  const ModelShape& m_;
  Engine engine_;
  int tp_, ep_;
  TpCost* cost_ = nullptr;
};

}  // namespace detail

inline TpCost tp_cost(const ModelShape& m, Engine engine, int tp, int ep) {
  TpCost cost;
  const std::vector<ModelWeight> all = model_weights(m, engine);
  const Index ranks = ranks_of(engine, tp, ep);
  for (Index rank = 0; rank < ranks; ++rank) {
    RankBytes bytes;
    for (const detail::RankWeight& w : detail::rank_weights(m, engine, all, tp, ep, rank))
      (w.replicated ? bytes.replicated : bytes.sharded) += w.count * w.bytes;
    cost.weights.push_back(bytes);
    const Index ep_rank = detail::ep_rank_of(engine, tp, rank);
    cost.experts.push_back(m.moe_layers() == 0 ? 0 : local_experts(m.experts, ep, ep_rank));
  }
  const Index kv_heads = gathers_fused(m, engine) ? m.kv_heads : local_kv_heads(m.kv_heads, tp);
  cost.kv_bytes_per_token = 2 * m.layers * kv_heads * m.head_dim * bytes_of(m.dtype);
  detail::Collectives(m, engine, tp, ep).add_to(cost);
  return cost;
}

}  // namespace tpsim
