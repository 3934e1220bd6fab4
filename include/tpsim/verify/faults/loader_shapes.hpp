// SPDX-License-Identifier: MIT
// Sizes and options that show a loader's faults. Sizes that a checkpoint has fixed stay, and what
// comes out is legal where what came in was.
#pragma once

#include <string>
#include <utility>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim::detail {

/// `changed` where it is legal and no checkpoint has fixed the sizes.
[[nodiscard]] inline LayerSpec if_free(const LayerSpec& s, LayerSpec changed) {
  return s.values.empty() && violations(changed).empty() ? std::move(changed) : s;
}

/// Where each rank has kv heads of its own, tp / 2 of them are shared instead. This needs an even
/// tp of 4 or more, and sizes that neither a checkpoint nor a layout has fixed; otherwise they stay
/// as they are.
[[nodiscard]] inline LayerSpec with_shared_kv_heads(LayerSpec s) {
  const bool own_kv_heads =
      s.tp >= 4 && s.tp % 2 == 0 && s.qkv.kv_heads % s.tp == 0 && s.qkv.heads % (s.tp / 2) == 0;
  if (own_kv_heads && s.values.empty() && s.disk.empty()) s.qkv.kv_heads = s.tp / 2;
  return s;
}
/// A kv head for all query heads looks the same in many orders: two of them instead.
[[nodiscard]] inline LayerSpec with_several_kv_heads(LayerSpec s) {
  if (s.layer != "qkv" || s.qkv.kv_heads != 1) return s;
  LayerSpec two = s;
  two.qkv.kv_heads = 2;
  return if_free(s, std::move(two));
}
/// Not as many kv heads as query heads.
[[nodiscard]] inline LayerSpec with_grouped_heads(LayerSpec s) {
  if (s.qkv.kv_heads != s.qkv.heads) return s;
  LayerSpec half = s;
  half.qkv.kv_heads = s.qkv.heads / 2;
  return if_free(s, std::move(half));
}
[[nodiscard]] inline LayerSpec with_ungrouped_heads(LayerSpec s) {
  LayerSpec all = s;
  all.qkv.kv_heads = s.qkv.heads;
  return if_free(s, std::move(all));
}
/// A head_dim that is not hidden / heads.
[[nodiscard]] inline LayerSpec with_other_head_dim(LayerSpec s) {
  if (s.qkv.hidden / s.qkv.heads != s.qkv.head_dim) return s;
  LayerSpec wider = s;
  wider.qkv.hidden += s.qkv.heads;
  return if_free(s, std::move(wider));
}
/// Shards that are not whole blocks of `block` rows or columns.
template <Index block>
[[nodiscard]] LayerSpec with_uneven_shards(LayerSpec s) {
  const Index tp = s.tp;
  LayerSpec odd = s;
  const auto uneven = [&](Index& n) {
    if (n / tp % block == 0) n += tp;
  };
  if (s.layer == "column") uneven(odd.out);
  if (s.layer == "row") uneven(odd.in);
  if (s.layer == "mlp") uneven(odd.intermediate);
  if (s.layer == "qkv" && s.qkv.head_dim % 2 == 0) ++odd.qkv.head_dim;
  if (s.layer == "merged")
    for (MergedPart& part : odd.parts) uneven(part.rows);
  return if_free(s, std::move(odd));
}
/// A square weight where the dimension that is not cut does not divide by tp.
[[nodiscard]] inline LayerSpec with_both_sides_divisible(LayerSpec s) {
  LayerSpec square = s;
  if (s.layer == "column" && s.in % s.tp != 0) square.in = s.out;
  if (s.layer == "row" && s.out % s.tp != 0) square.out = s.in;
  return if_free(s, std::move(square));
}

/// Every part in a tensor of its own.
[[nodiscard]] inline LayerSpec with_separate_tensors(LayerSpec s) {
  s.disk.clear();
  return s;
}

}  // namespace tpsim::detail
