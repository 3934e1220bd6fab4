// SPDX-License-Identifier: MIT
// The faults that exist, by name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace tpsim {

/// A fault by name, and the layers that it can be put into.
struct Fault {
  std::string name;
  std::vector<std::string> layers;
  std::string summary;
  [[nodiscard]] bool applies_to(const std::string& layer) const {
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }
};

[[nodiscard]] inline const std::vector<Fault>& faults() {
  static const std::vector<Fault> all{
      {"gate-up-exchanged",
       {"merged", "mlp"},
       "the loader swaps the shard ids of gate and up, at every tp"},
      {"k-v-exchanged", {"qkv"}, "the loader swaps the shard ids of k and v"},
      {"fused-cut-as-one",
       {"qkv", "merged"},
       "a fused tensor is cut as one block instead of part by part"},
      {"kv-head-modulo",
       {"qkv"},
       "rank r takes kv head r % kv_heads instead of r / (tp / kv_heads)"},
      {"rank-zero",
       {"column", "row", "merged", "qkv"},
       "the loader takes the rank as 0: every rank holds the first part"},
      {"off-by-one-rows",
       {"column", "merged", "qkv", "replicated", "mlp"},
       "the loader starts one row too late"},
      {"never-written",
       {"column", "row", "merged", "qkv", "replicated", "mlp"},
       "the last weight of the checkpoint is never loaded"},
      {"bias-on-every-rank",
       {"row", "mlp"},
       "every rank adds the row-parallel bias before the sum"},
      {"missing-all-reduce", {"row", "mlp"}, "the partial products are never summed"},
      {"doubled-all-reduce", {"row", "mlp"}, "the partial products are summed twice"},
      {"sub-group-all-reduce", {"row", "mlp"}, "the sum runs over one half of the ranks only"},
  };
  return all;
}

}  // namespace tpsim
