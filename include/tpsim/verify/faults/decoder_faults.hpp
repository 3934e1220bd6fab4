// SPDX-License-Identifier: MIT
// Faults of attention, its norms and its per-head vectors: the rank's numbers where the model's
// belong, and the reverse.
//
// Not here: rows of a head gate (no attention here has one).
#pragma once

#include <tpsim/verify/faults/fault.hpp>
#include <tpsim/verify/faults/loader_shapes.hpp>

namespace tpsim::detail {

[[nodiscard]] inline LayerSpec with_full_width_norm(LayerSpec s) {
  s.decoder.attention.qk_norm = QkNorm::full_width;
  return s;
}
[[nodiscard]] inline LayerSpec with_head_norm(LayerSpec s) {
  s.decoder.attention.qk_norm = QkNorm::per_head;
  return s;
}
[[nodiscard]] inline LayerSpec with_alibi(LayerSpec s) {
  s.decoder.attention.alibi = true;
  return s;
}
[[nodiscard]] inline LayerSpec with_sinks(LayerSpec s) {
  s.decoder.attention.sinks = true;
  return s;
}
/// A window that some of the tokens, of which there are enough, do not see across.
[[nodiscard]] inline LayerSpec with_short_window(LayerSpec s) {
  s.decoder.attention.window = 2;
  s.tokens = std::max<Index>(s.tokens, 8);
  return s;
}
/// Sequences that go on in a second step.
[[nodiscard]] inline LayerSpec with_two_steps(LayerSpec s) {
  if (!s.decoder.attention.rope) s.decoder.attention.rope = RopeSpec{s.qkv.head_dim / 2 * 2};
  s.tokens = std::max<Index>(s.tokens, 8);
  s.chunk = 3;
  return s;
}
/// Two ranks hold each kv head, where the sizes are free.
[[nodiscard]] inline LayerSpec with_kv_replicas(LayerSpec s) {
  if (s.tp % 2 != 0 || s.qkv.kv_heads < s.tp) return s;
  LayerSpec shared = s;
  shared.qkv.kv_heads = s.tp / 2;
  return if_free(s, std::move(shared));
}

[[nodiscard]] inline std::vector<Fault> decoder_faults() {
  return {
      {"norm-statistics-not-shared",
       {"norm", "attention", "decoder"},
       "a norm over all heads takes the mean square of the rank's own heads",
       changes(LayerChange::squares_not_shared),
       with_full_width_norm},
      {"norm-over-local-width",
       {"norm", "attention", "decoder"},
       "the squares of all heads are divided by the width of the rank's own",
       changes(LayerChange::squares_over_local_width),
       with_full_width_norm},
      {"norm-counts-kv-replicas",
       {"attention", "decoder"},
       "a norm over all k heads counts a head once for each rank that holds it",
       changes(LayerChange::squares_of_replicas),
       with_full_width_norm,
       with_kv_replicas},
      {"k-norm-cut-by-rank",
       {"attention", "decoder"},
       "the weight of a norm over all k heads is cut by rank, not by kv head",
       changes(LayerChange::norm_cut_by_rank),
       with_full_width_norm,
       with_kv_replicas},
      {"head-norm-shared",
       {"attention", "decoder"},
       "the squares of single heads are summed over the ranks",
       changes(LayerChange::head_norm_shared),
       with_head_norm},
      {"sinks-of-first-heads",
       {"attention", "decoder"},
       "every rank holds the sinks of the first heads",
       changes(LayerChange::head_vector_first),
       with_sinks},
      {"slopes-of-local-heads",
       {"attention", "decoder"},
       "ALiBi slopes follow from the number of the rank's own heads",
       changes(LayerChange::slopes_of_local_heads),
       with_alibi},
      {"slopes-from-head-zero",
       {"attention", "decoder"},
       "every rank takes the ALiBi slopes of the first heads",
       changes(LayerChange::slopes_from_head_zero),
       with_alibi},
      {"scaled-by-rank-width",
       {"attention", "decoder"},
       "scores are divided by the root of the rank's query columns, not of head_dim",
       changes(LayerChange::scaled_by_rank_width)},
      {"window-one-longer",
       {"attention", "decoder"},
       "a token sees as many earlier tokens as the window has, and itself",
       changes(LayerChange::window_one_longer),
       with_short_window},
      {"positions-restart",
       {"attention", "decoder"},
       "every step counts the positions of its tokens from 0",
       changes(LayerChange::positions_restart),
       with_two_steps},
  };
}

}  // namespace tpsim::detail
