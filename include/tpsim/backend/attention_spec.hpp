// SPDX-License-Identifier: MIT
// Attention of the query heads of one rank over one sequence: sizes, mask, and what is added to
// the scores.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/core/error.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim {

/// Slopes follow from the number of all heads and the global number of a head: rank r's first is
/// not head 0. Source: Press et al., Train Short, Test Long (2021).
struct Alibi {
  Index first_head = 0;   ///< global number of the first head here
  Index total_heads = 0;  ///< of the whole model
  friend bool operator==(const Alibi&, const Alibi&) = default;
};

/// Slope of a head, in double: 2^(-8 (h+1) / n) for a power of two n; else those of the greatest
/// power of two below, then every second of twice as many.
[[nodiscard]] inline double alibi_slope(Index head, Index total_heads) {
  Index n = 1;
  while (2 * n <= total_heads) n *= 2;
  const auto at = [](double i, double of) { return std::exp2(-8.0 * i / of); };
  if (head < n) return at(static_cast<double>(head + 1), static_cast<double>(n));
  return at(static_cast<double>(2 * (head - n) + 1), static_cast<double>(2 * n));
}

/// Query row t stands at position first_position + t and sees the keys of positions
/// [max(0, p - window + 1), p]; key row j stands at position j. Query head i reads kv head
/// i / (heads / kv_heads), both counted on this rank.
/// score = q . k / sqrt(scale_dim) + slope (key position - query position); softmax over the keys
/// that are seen, and over the head's sink when there is one (which has no value).
/// Source: Vaswani et al. (2017); Shazeer (2019) for shared kv heads; window as in transformers
/// `masking_utils.py`; sinks as in gpt_oss.
struct AttentionSpec {
  Index heads = 0, kv_heads = 0;  ///< on this rank
  Index head_dim = 0, v_head_dim = 0;
  Index scale_dim = 0;            ///< the integer under the root: head_dim of the whole model
  Index first_position = 0;       ///< of query row 0: how many tokens the cache held before
  std::optional<Index> window{};  ///< how many positions a token sees, itself included
  std::optional<Alibi> alibi{};

  [[nodiscard]] constexpr Index group() const { return kv_heads > 0 ? heads / kv_heads : 0; }
  [[nodiscard]] constexpr Index first_key(Index query) const {
    const Index position = first_position + query;
    return window && position >= *window ? position - *window + 1 : 0;
  }
  [[nodiscard]] constexpr Index last_key(Index query) const { return first_position + query; }
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

/// Shared by every backend's attention(): q [tokens, heads head_dim],
/// k [context, kv_heads head_dim], v [context, kv_heads v_head_dim], sinks [heads] or none, where
/// context = first_position + tokens. @throws LayoutError (heads) with everything that does not fit
inline void require_attention_fits(const AttentionSpec& s, Shape q, Shape k, Shape v,
                                   std::optional<Index> sinks) {
  std::vector<Violation> broken;
  const auto equal = [&](const std::string& what, Index have, Index wanted) {
    if (have != wanted)
      broken.push_back(
          {"heads", what + " is " + std::to_string(have) + ", wanted " + std::to_string(wanted)});
  };
  if (s.heads <= 0 || s.kv_heads <= 0 || s.heads % s.kv_heads != 0)
    broken.push_back({"heads", std::to_string(s.heads) + " query heads over " +
                                   std::to_string(s.kv_heads) + " kv heads"});
  if (s.scale_dim <= 0) broken.push_back({"heads", "the scale's dimension must be positive"});
  if (s.first_position < 0) broken.push_back({"heads", "the first position is negative"});
  if (s.window && *s.window <= 0) broken.push_back({"heads", "a window needs a position"});
  equal("the width of q", q.cols(), s.heads * s.head_dim);
  equal("the width of k", k.cols(), s.kv_heads * s.head_dim);
  equal("the width of v", v.cols(), s.kv_heads * s.v_head_dim);
  equal("the number of keys", k.rows(), s.first_position + q.rows());
  equal("the number of values", v.rows(), k.rows());
  if (sinks) equal("the number of sinks", *sinks, s.heads);
  if (!broken.empty()) throw LayoutError("attention cannot read its inputs", std::move(broken));
}

}  // namespace tpsim
