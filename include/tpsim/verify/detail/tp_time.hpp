// SPDX-License-Identifier: MIT
// Bodies of tp_time.hpp.
#pragma once

#include <tpsim/verify/tp_time.hpp>

namespace tpsim {
namespace detail {

// Weights that a rank reads for `tokens` tokens and multiplies with them.
inline ForwardWork weight_work(const ModelShape& m, Engine engine,
                               const std::vector<RankWeight>& weights, Index tp, Index ep,
                               Index tokens) {
  ForwardWork work;
  // Choices of an expert of one layer that meet on a rank.
  const Index groups = ranks_of(engine, tp, ep) / tp;
  const Index over = std::max<Index>(ep, 1);
  const Index choices = (groups * tokens * m.experts_per_token + over - 1) / over;
  for (const RankWeight& w : weights) {
    const double elements = static_cast<double>(w.rows) * static_cast<double>(w.cols);
    double read = static_cast<double>(w.count), used = read * static_cast<double>(tokens);
    switch (w.weight->role) {
      case WeightRole::dense:
        break;
      case WeightRole::expert: {
        if (w.count == 0) continue;
        // `count` is layers * tensors of an expert * experts on the rank.
        const double of_one = read / static_cast<double>(w.experts);
        read = of_one * static_cast<double>(std::min(choices, w.experts));
        used = of_one * static_cast<double>(choices);
        break;
      }
      case WeightRole::embedding:
        work.bytes += static_cast<double>(tokens * m.hidden * bytes_of(m.dtype));
        if (!m.tied) continue;
        used = 1;
        break;
      case WeightRole::head:
        used = 1;
        break;
    }
    work.bytes += read * static_cast<double>(w.bytes);
    work.flop += 2 * used * elements;
  }
  return work;
}

}  // namespace detail

inline ForwardWork forward_work(const ModelShape& m, Engine engine, int tp, int ep, Index tokens,
                                Index past) {
  const TpCost cost = tp_cost(m, engine, tp, ep);
  const std::vector<ModelWeight> all = model_weights(m, engine);
  ForwardWork work;
  for (Index rank = 0; rank < ranks_of(engine, tp, ep); ++rank) {
    const ForwardWork own = detail::weight_work(
        m, engine, detail::rank_weights(m, engine, all, tp, ep, rank), tp, ep, tokens);
    work.bytes = std::max(work.bytes, own.bytes);
    work.flop = std::max(work.flop, own.flop);
  }
  const auto d = [](Index n) { return static_cast<double>(n); };
  work.bytes += d(cost.kv_bytes_per_token) * d(past + tokens);
  // A product with k and one with v, for each position that a token sees.
  const Index heads = gathers_fused(m, engine) ? m.heads : m.heads / tp;
  const double seen = d(tokens) * d(past) + d(tokens) * d(tokens + 1) / 2;
  work.flop += 4 * d(m.layers) * d(heads * m.head_dim) * seen;
  work.wire_bytes =
      d(tokens) * d(cost.wire_bytes - cost.logits_wire_bytes) + d(cost.logits_wire_bytes);
  for (const PlannedCollective& c : cost.collectives) work.collectives += c.count;
  return work;
}

}  // namespace tpsim
