// SPDX-License-Identifier: MIT
// The laws of parallel layers, as a list.
#pragma once

#include <properties/laws/cover.hpp>
#include <properties/laws/disk_order.hpp>
#include <properties/laws/full.hpp>
#include <properties/laws/heads.hpp>
#include <properties/laws/load_order.hpp>
#include <properties/laws/merge.hpp>
#include <properties/laws/refusal.hpp>
#include <properties/laws/schedule.hpp>

namespace tpsim::properties {

[[nodiscard]] inline const std::vector<Law>& all_laws() {
  static const std::vector<Law> laws{
      {"cover", "params partition the full tensor", params_partition_the_full_tensor},
      {"state", "every value is in the state that its reader needs", every_value_is_in_its_state},
      {"exact", "the layer equals full() in the field", equals_full_in_the_field},
      {"integer", "the layer equals full() bit for bit on integers",
       equals_full_bit_for_bit_on_integers},
      {"rounding", "the layer equals full() within the bound on floats",
       equals_full_within_the_bound},
      {"merge", "merging the shards gives the tensor", merging_the_shards_gives_the_tensor},
      {"load-order", "load order does not matter", load_order_does_not_matter},
      {"disk-order", "fused loads equal part-wise loads for every disk order",
       fused_loads_equal_part_wise_loads},
      {"heads", "every q head has its kv head", every_q_head_has_its_kv_head},
      {"schedule", "results do not depend on schedule or thread count",
       schedule_and_threads_do_not_matter},
      {"refusal", "every illegal shape is refused with all reasons", every_illegal_shape_is_refused,
       true},
  };
  return laws;
}

/// The law of this id. @throws LayoutError (names)
[[nodiscard]] inline const Law& law(const std::string& id) {
  for (const Law& each : all_laws())
    if (each.id == id) return each;
  throw LayoutError("there is no law '" + id + "'");
}

}  // namespace tpsim::properties
