// SPDX-License-Identifier: MIT
// Bodies of tp_padding.hpp.
#pragma once

#include <tpsim/verify/tp_padding.hpp>

namespace tpsim {
namespace detail {

inline bool breaks(const ModelShape& m, Engine engine, Index tp, RuleArea area, Index ep = 0) {
  for (const BrokenRule& rule : broken_rules(m, engine, tp, ep))
    if (rule.area == area) return true;
  return false;
}

inline std::optional<ModelShape> padded_heads(const ModelShape& m, Engine engine, Index tp) {
  const Quantization& quant = m.quantization;
  if (quant.group_size > 0 && m.hidden % quant.group_size != 0) return std::nullopt;
  std::optional<ModelShape> best;
  // Rows of q and columns of o, rows of k and of v: all are [.., hidden].
  const auto rows = [](Index kv_heads, Index group) { return 2 * kv_heads * (group + 1); };
  // The rules of whole heads, cheap; the full rules then judge groups and blocks too.
  const auto fits = [&](Index kv, Index group) {
    if (gathers_fused(m, engine))
      return kv * (group + 2) * m.head_dim % tp == 0 && kv * group * m.head_dim % tp == 0;
    return kv * group % tp == 0 && (kv % tp == 0 || (shares_kv_heads(engine) && tp % kv == 0));
  };
  Index least = 0;
  for (Index kv = m.kv_heads; kv <= round_up(m.kv_heads, tp); ++kv) {
    if (best && rows(kv, m.group()) >= least) break;
    // A group has `tp` sizes before its remainder repeats, times what a quantised head needs.
    for (Index group = m.group(); group <= m.group() + 4 * tp; ++group) {
      if (best && rows(kv, group) >= least) break;
      if (!fits(kv, group)) continue;
      ModelShape padded = m;
      padded.kv_heads = kv, padded.heads = kv * group;
      if (breaks(padded, engine, tp, RuleArea::attention)) continue;
      best = padded, least = rows(kv, group);
      break;
    }
  }
  return best;
}

// A width that is a multiple of tp and, on each rank, of what the quantisation keeps together.
inline Index padded_width(const ModelShape& m, Engine engine, Index tp, Index width,
                          RuleArea area) {
  const Quantization& q = m.quantization;
  Index unit = 1;
  if (engine == Engine::vllm) {
    if (area == RuleArea::experts && q.method == QuantMethod::mxfp4) {
      Index blocks = (width + mxfp4_block - 1) / mxfp4_block;
      const auto empty_ranks = [&] {
        const Index each = (blocks + tp - 1) / tp;
        return (blocks + each - 1) / each < tp;
      };
      while (empty_ranks()) ++blocks;
      return blocks * mxfp4_block;
    }
    if (q.group_size > 0) unit = std::lcm(unit, q.group_size);
    if (q.block_k > 0) unit = std::lcm(unit, std::lcm(q.block_k, q.block_n));
    unit = std::lcm(unit, q.pack_factor());
  }
  return round_up(width, tp * unit);
}

inline std::string heads_text(const ModelShape& m, const ModelShape& p) {
  std::string text =
      "pad " + std::to_string(m.heads) + " query heads to " + std::to_string(p.heads);
  const bool more_kv = p.kv_heads != m.kv_heads, more_group = p.group() != m.group();
  if (more_kv)
    text += " and " + std::to_string(m.kv_heads) + " kv heads to " + std::to_string(p.kv_heads);
  if (more_group)
    text += ": from " + std::to_string(m.group()) + " to " + std::to_string(p.group()) +
            " in each kv group";
  return text;
}

}  // namespace detail

inline std::optional<TpPadding> smallest_padding(const ModelShape& m, Engine engine, Index tp,
                                                 RuleArea area, Index ep) {
  if (!detail::breaks(m, engine, tp, area, ep)) return std::nullopt;
  TpPadding found{area, m, 0, {}};
  ModelShape& p = found.padded;
  const auto width = [&](Index& size, const char* what) {
    const Index before = size;
    const Index over = area == RuleArea::experts ? expert_tp(engine, tp, ep) : tp;
    size = detail::padded_width(m, engine, over, size, area);
    found.text = std::string("pad ") + what + " from " + std::to_string(before) + " to " +
                 std::to_string(size);
  };
  switch (area) {
    case RuleArea::attention: {
      const std::optional<ModelShape> heads = detail::padded_heads(m, engine, tp);
      if (!heads) return std::nullopt;
      p = *heads;
      found.text = detail::heads_text(m, p);
      break;
    }
    case RuleArea::mlp:
      width(p.intermediate, "intermediate");
      break;
    case RuleArea::experts:
      width(p.expert_intermediate, "the experts' width");
      break;
    case RuleArea::vocab:
      p.vocab = round_up(m.vocab, engine == Engine::vllm ? std::lcm(Index{64}, tp) : tp);
      found.text =
          "pad the vocabulary from " + std::to_string(m.vocab) + " to " + std::to_string(p.vocab);
      break;
    case RuleArea::ranks:
    case RuleArea::checkpoint:
      return std::nullopt;
  }
  // A hostile block size could ask for more than can be counted.
  if (weight_estimate(p) > countable_weights || detail::breaks(p, engine, tp, area, ep))
    return std::nullopt;
  found.added_bytes = checkpoint_bytes(p) - checkpoint_bytes(m);
  return found;
}

}  // namespace tpsim
