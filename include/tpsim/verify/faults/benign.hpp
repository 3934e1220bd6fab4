// SPDX-License-Identifier: MIT
// Rewrites of the layers that look wrong and are right: no reading may find anything in them.
#pragma once

#include <tpsim/verify/faults/fault.hpp>
#include <tpsim/verify/faults/faulty_comm.hpp>
#include <tpsim/verify/faults/faulty_layers.hpp>
#include <tpsim/verify/linear_subjects.hpp>

namespace tpsim {
namespace detail {

/// The layer is told its ranks from the last to the first, whatever it does with them.
class ReversedRanks final : public PassOn {
 public:
  explicit ReversedRanks(Communicator& world) : PassOn(world) {
    reversed_ = world.split(0, -world.rank());
    world_ = reversed_.get();
  }

 private:
  std::unique_ptr<Communicator> reversed_;
};

/// One kv group for each rank, stored group by group: then a group is all that a rank holds.
[[nodiscard]] inline LayerSpec one_group_a_rank(LayerSpec s) {
  if (!s.values.empty()) return s;
  s.disk = "kv*(q:g*d + k:d + v:m)";
  const Index group = std::max<Index>(1, s.qkv.heads / std::max<Index>(1, s.qkv.kv_heads));
  s.qkv.kv_heads = s.tp;
  s.qkv.heads = group * s.tp;
  return s;
}

}  // namespace detail

/// Not among them: storage in group order with several groups a rank, cut contiguously. It is right
/// for a rank that keeps the order of the disk; these layers hold q, k and v one after the other.
[[nodiscard]] inline const std::vector<NamedVariation>& benign_variations() {
  static const std::vector<NamedVariation> all{
      {"bias-on-rank-zero",
       {"row", "mlp"},
       "rank 0 alone adds the bias before the sum, as the layer itself does",
       detail::changes(LayerChange::none),
       detail::with_bias},
      {"bias-divided-on-every-rank",
       {"row", "mlp"},
       "every rank adds bias / tp before the sum",
       detail::changes(LayerChange::bias_divided),
       detail::with_bias},
      {"bias-after-sum",
       {"row", "mlp"},
       "every rank adds the bias after the sum",
       detail::changes(LayerChange::bias_after_sum),
       detail::with_bias},
      {"sum-from-last-rank",
       {"row", "mlp"},
       "the partial products are added from the last rank to the first",
       detail::talks_through<detail::InOtherGroup>(CollectiveOp::all_reduce,
                                                   detail::reversed_ranks)},
      {"gathered-and-not-used",
       {"column", "merged"},
       "the columns are gathered, and nothing follows",
       detail::changes(LayerChange::none),
       detail::with_collective},
      {"ranks-reversed",
       {"mlp"},
       "rank r holds part tp - 1 - r of gate, of up and of down",
       detail::talks_through<detail::ReversedRanks>()},
      {"channels-permuted",
       {"mlp"},
       "the channels of gate, of up and of down are in one other order on all ranks",
       detail::changes(LayerChange::channels_permuted)},
      {"group-order-cut-as-one",
       {"qkv"},
       "a tensor in group order is cut contiguously, one kv group for each rank",
       detail::changes(LayerChange::cut_as_one),
       detail::one_group_a_rank},
  };
  return all;
}

/// The layer of `spec`, with what the variation needs, and the variation in it.
/// @throws LayoutError for an illegal shape
[[nodiscard]] inline std::unique_ptr<Subject> make_benign_subject(LayerSpec spec,
                                                                  const NamedVariation& v) {
  if (v.needs) spec = v.needs(std::move(spec));
  require_legal(spec);
  return std::make_unique<LinearSubject<FaultyLayers>>(spec, v.variation(spec));
}

}  // namespace tpsim
