// SPDX-License-Identifier: MIT
// Faults of weight_loaders: the wrong rows, heads, parts or order.
#pragma once

#include <tpsim/verify/faults/fault.hpp>
#include <tpsim/verify/faults/loader_shapes.hpp>
#include <tpsim/verify/faults/misled_loaders.hpp>
#include <tpsim/verify/faults/misread_layouts.hpp>

namespace tpsim::detail {

/// A variation that leaves the class as it is, but gives the loader other tensors.
template <class Mislead>
[[nodiscard]] std::function<Variation(const LayerSpec&)> gives(Mislead mislead) {
  return always({.before_load = mislead});
}

/// Which slice of a tensor a rank takes.
[[nodiscard]] inline std::vector<Fault> slice_faults() {
  return {
      {"rank-zero",
       {"column", "row", "merged", "qkv", "mlp", "attention", "decoder"},
       "the loader takes the rank as 0: every rank holds the first part",
       changes(LayerChange::rank_zero)},
      {"next-rank-part",
       {"column", "row", "merged", "qkv"},
       "the loader takes the rank as one more: every rank holds the next rank's part",
       changes(LayerChange::next_part)},
      {"not-cut",
       {"column", "row", "merged", "qkv"},
       "the layer takes tp as 1 and holds the whole tensor; a row-parallel result is summed still",
       [](const LayerSpec& s) {
         if (s.layer == "row") return Variation{.layer = LayerChange::not_cut};
         return talks_through<Alone>()(s);
       },
       with_whole_input},
      {"cut-twice",
       {"column", "row", "merged", "qkv", "mlp"},
       "the loader cuts a tensor that was cut for this rank before",
       changes(LayerChange::cut_twice)},
      {"wrong-dimension",
       {"column", "row"},
       "a column-parallel weight is cut along its columns, a row-parallel one along its rows",
       changes(LayerChange::wrong_dimension),
       {},
       with_both_sides_divisible},
      {"padded-offset",
       {"column", "row", "merged", "qkv", "mlp"},
       "the offset steps by the shard's size padded to 8 rows or columns",
       changes(LayerChange::padded_offset),
       {},
       with_uneven_shards<8>},
      {"local-offset",
       {"column", "row", "merged", "qkv", "mlp"},
       "the offset steps by the shard's size divided by tp once more",
       changes(LayerChange::local_offset)},
      {"off-by-one-rows",
       {"column", "merged", "qkv", "replicated", "mlp"},
       "the loader starts one row too late",
       gives(one_row_late)},
      {"tail-dropped",
       {"column", "row", "merged", "qkv", "mlp"},
       "the loader copies whole blocks of 4 rows or columns, never the rest of a part",
       changes(LayerChange::tail_dropped),
       {},
       with_uneven_shards<4>},
      {"never-written",
       {"column", "row", "merged", "qkv", "replicated", "mlp", "norm", "attention", "decoder"},
       "the last weight of the checkpoint is never loaded",
       gives(without_last_weight)},
      {"name-matched-in-part",
       {"merged", "qkv", "mlp"},
       "the last part's name matches the first of the equal parts too and is loaded there",
       [](const LayerSpec& s) {
         return s.layer == "qkv" ? Variation{.before_load = as_if_named("v", "k", s)}
                                 : Variation{.before_load = as_if_named("up", "gate", s)};
       },
       with_separate_tensors},
      {"arrival-order",
       {"merged", "qkv", "mlp"},
       "parts are put one behind the other in the order in which they arrive",
       changes(LayerChange::arrival_order),
       with_separate_tensors},
  };
}

/// One-dimensional tensors.
[[nodiscard]] inline std::vector<Fault> bias_loader_faults() {
  return {
      {"bias-never-read",
       {"column", "row", "merged", "qkv", "replicated", "mlp"},
       "the checkpoint's biases are never loaded",
       gives(without_biases),
       with_bias},
      {"bias-not-cut",
       {"column", "merged", "qkv", "mlp"},
       "biases are taken for whole tensors: every rank holds the first entries",
       changes(LayerChange::bias_not_cut),
       with_bias},
      {"row-bias-cut",
       {"row", "mlp"},
       "a row-parallel bias, which belongs whole on every rank, is cut like a weight",
       changes(LayerChange::bias_cut),
       with_bias},
      {"fused-bias-cut-as-one",
       {"qkv", "merged", "mlp"},
       "a fused weight is cut part by part, its bias as one block",
       changes(LayerChange::bias_cut_as_one),
       [](LayerSpec s) { return with_fused_tensor(with_bias(std::move(s))); }},
  };
}

/// Query, key and value heads.
[[nodiscard]] inline std::vector<Fault> head_faults() {
  return {
      {"k-v-exchanged",
       {"qkv"},
       "the loader swaps the shard ids of k and v",
       [](const LayerSpec& s) { return Variation{.before_load = exchange("k", "v", s)}; }},
      {"q-k-exchanged",
       {"qkv"},
       "the loader swaps the shard ids of q and k",
       [](const LayerSpec& s) { return Variation{.before_load = exchange("q", "k", s)}; },
       {},
       with_ungrouped_heads},
      {"kv-head-modulo",
       {"qkv", "attention", "decoder"},
       "rank r takes kv head r % kv_heads instead of r / (tp / kv_heads)",
       changes(LayerChange::kv_head_modulo),
       {},
       with_shared_kv_heads},
      {"kv-head-zero",
       {"qkv", "attention", "decoder"},
       "every rank takes the first kv heads",
       changes(LayerChange::kv_head_zero),
       {},
       with_several_kv_heads},
      {"off-by-one-head",
       {"qkv"},
       "the loader starts one head too late",
       changes(LayerChange::one_head_late)},
      {"global-head-count",
       {"qkv"},
       "k and v are put behind as many query heads as the model has, not as the rank has",
       changes(LayerChange::global_head_count)},
      {"even-head-dim",
       {"qkv"},
       "head_dim is taken as hidden / heads",
       always({.misbuild = with_even_head_dim}),
       {},
       with_other_head_dim},
      {"kv-heads-as-heads",
       {"qkv"},
       "the layer is built with as many kv heads as query heads",
       always({.misbuild = with_a_kv_head_per_head}),
       {},
       with_grouped_heads},
  };
}

/// Several parts in one tensor on disk.
[[nodiscard]] inline std::vector<Fault> fused_faults() {
  return {
      {"gate-up-exchanged",
       {"merged", "mlp"},
       "the loader swaps the shard ids of gate and up, at every tp",
       [](const LayerSpec& s) { return Variation{.before_load = exchange("gate", "up", s)}; }},
      {"fused-cut-as-one",
       {"qkv", "merged", "mlp"},
       "a fused tensor is cut as one block instead of part by part",
       changes(LayerChange::cut_as_one),
       with_fused_tensor},
      {"local-heads-on-disk",
       {"qkv"},
       "k and v are looked for behind the rank's own query heads, not behind all",
       changes(LayerChange::local_heads_on_disk),
       with_fused_tensor},
      {"equal-thirds",
       {"qkv"},
       "k and v are looked for after one and two thirds of the rows",
       read_as_equal_thirds,
       stored_as(blocked_layout),
       with_grouped_heads},
      {"per-head-read-as-blocked",
       {"qkv"},
       "a tensor with q, k and v of each head together is read as all q, all k, all v",
       read_as_blocked,
       stored_as(kv_group_layout),
       with_ungrouped_heads},
      {"kv-group-read-as-blocked",
       {"qkv"},
       "a tensor with the heads of each kv group together is read as all q, all k, all v",
       read_as_blocked,
       stored_as(kv_group_layout),
       with_several_kv_heads},
      {"kv-group-read-as-per-head",
       {"qkv"},
       "a tensor with the heads of each kv group together is read as q, k, v, q, k, v",
       read_as_per_head,
       stored_as(kv_group_layout),
       with_grouped_heads},
      {"stripes-read-as-blocked",
       {"qkv", "merged", "mlp"},
       "a tensor stored rank by rank is read as one part after the other",
       read_as_blocked,
       stored_as(striped_layout),
       with_several_kv_heads},
      {"blocked-read-as-stripes",
       {"qkv", "merged", "mlp"},
       "a tensor stored one part after the other is read as if stored rank by rank",
       read_as_stripes,
       stored_as(blocked_layout),
       with_several_kv_heads},
      {"interleaved-read-as-halves",
       {"mlp"},
       "a tensor with gate and up row by row is read as all of gate, all of up",
       read_as_blocked,
       stored_as(row_by_row_layout)},
      {"halves-read-as-interleaved",
       {"mlp"},
       "a tensor with all of gate, then all of up, is read row by row",
       read_row_by_row,
       stored_as(blocked_layout)},
      {"reordered-twice",
       {"qkv", "mlp"},
       "the rows of a fused tensor are sorted into parts, then sorted once more",
       reordered_twice,
       stored_as(interleaved_layout),
       with_several_kv_heads},
  };
}

[[nodiscard]] inline std::vector<Fault> loader_faults() {
  std::vector<Fault> all;
  for (auto part : {slice_faults(), bias_loader_faults(), head_faults(), fused_faults()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace tpsim::detail
