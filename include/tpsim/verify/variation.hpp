// SPDX-License-Identifier: MIT
// A small change to the code under test: what a fault, or a rewrite that is right, consists of.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <tpsim/comm/communicator.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// Which few lines of a layer are others than the real ones (verify/faulty_layers.hpp).
enum class LayerChange : std::uint8_t {
  none,
  cut_as_one,
  kv_head_modulo,
  rank_zero,
  arrival_order,
  bias_cut,
  bias_cut_as_one,
  bias_not_cut,
  cut_twice,
  global_head_count,
  kv_head_zero,
  local_heads_on_disk,
  local_offset,
  next_part,
  not_cut,
  one_head_late,
  padded_offset,
  tail_dropped,
  wrong_dimension,
  channels_permuted,
  bias_on_every_rank,
  bias_on_no_rank,
  bias_divided_on_rank_zero,
  bias_divided,
  bias_after_sum,
  bias_after_sum_on_rank_zero,
  average,
  residual_in_sum,
  sum_of_whole,
  parts_not_regrouped,
  ids_shifted,
  ids_not_masked,
  ids_not_zeroed,
  padding_kept,
  tied_not_cut,
  argmax_of_shard,
  argmax_without_start,
  argmax_of_padding,
  last_of_batch,
  all_tokens,
  squares_not_shared,
  squares_over_local_width,
  squares_of_replicas,
  head_norm_shared,
  norm_cut_by_rank,
  head_vector_first,
  slopes_of_local_heads,
  slopes_from_head_zero,
  scaled_by_rank_width,
  window_one_longer,
  positions_restart,
};

/// All empty for the real thing.
struct Variation {
  LayerChange layer = LayerChange::none;
  /// The sizes and options that the layer is built with, where they are not those it should have.
  std::function<LayerSpec(LayerSpec)> misbuild = {};
  /// What the loader is given instead of a tensor; nullopt: it is never given.
  std::function<std::optional<DiskTensor>(const DiskTensor&, const Subject&)> before_load = {};
  /// A communicator between the layer and its world.
  std::function<std::unique_ptr<Communicator>(Communicator&)> between = {};
};

}  // namespace tpsim
