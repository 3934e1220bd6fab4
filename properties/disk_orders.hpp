// SPDX-License-Identifier: MIT
// Every order in which a fused tensor lies on disk, as an expression and, row by row, in loops.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim::properties {

/// Which row of which part a disk row is: {"k", 3}.
using Owner = std::pair<std::string, Index>;

struct DiskOrder {
  std::string name;           ///< "per kv group"
  std::string expression;     ///< "kv*(q:g*d + k:d + v:m)"
  std::vector<Owner> owners;  ///< [disk row], written out without the expression
};

namespace detail {

[[nodiscard]] inline std::vector<DiskOrder> qkv_orders(const QkvShape& q) {
  const Index g = q.heads / q.kv_heads, d = q.head_dim, m = q.v_head(), kv = q.kv_heads;
  const auto add = [](std::vector<Owner>& rows, const char* part, Index begin, Index count) {
    for (Index i = 0; i < count; ++i) rows.emplace_back(part, begin + i);
  };
  std::vector<DiskOrder> out;
  DiskOrder blocked{"blocked", "q:kv*g*d + k:kv*d + v:kv*m", {}};
  add(blocked.owners, "q", 0, kv * g * d);
  add(blocked.owners, "k", 0, kv * d);
  add(blocked.owners, "v", 0, kv * m);
  out.push_back(std::move(blocked));
  DiskOrder group{"per kv group", "kv*(q:g*d + k:d + v:m)", {}};
  for (Index head = 0; head < kv; ++head) {
    add(group.owners, "q", head * g * d, g * d);
    add(group.owners, "k", head * d, d);
    add(group.owners, "v", head * m, m);
  }
  out.push_back(std::move(group));
  DiskOrder backwards{"blocked with v first", "v:kv*m + q:kv*g*d + k:kv*d", {}};
  add(backwards.owners, "v", 0, kv * m);
  add(backwards.owners, "q", 0, kv * g * d);
  add(backwards.owners, "k", 0, kv * d);
  out.push_back(std::move(backwards));
  if (g == 1) {
    DiskOrder head_by_head{"per head", "h*(q:d + k:d + v:m)", {}};
    for (Index head = 0; head < q.heads; ++head) {
      add(head_by_head.owners, "q", head * d, d);
      add(head_by_head.owners, "k", head * d, d);
      add(head_by_head.owners, "v", head * m, m);
    }
    out.push_back(std::move(head_by_head));
  }
  return out;
}

[[nodiscard]] inline std::vector<DiskOrder> merged_orders(const std::vector<MergedPart>& parts) {
  DiskOrder blocked{"blocked", "", {}}, backwards{"last part first", "", {}},
      interleaved{"interleaved", "", {}};
  bool equal = true;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const std::string term = parts[k].name + ":n" + std::to_string(k);
    blocked.expression += (k > 0 ? " + " : "") + term;
    backwards.expression = term + (k > 0 ? " + " : "") + backwards.expression;
    interleaved.expression += (k > 0 ? " + " : "i*(") + parts[k].name;
    for (Index row = 0; row < parts[k].rows; ++row) blocked.owners.emplace_back(parts[k].name, row);
    equal = equal && parts[k].rows == parts[0].rows;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    for (Index row = 0; row < part->rows; ++row) backwards.owners.emplace_back(part->name, row);
  interleaved.expression += ")";
  std::vector<DiskOrder> out{std::move(blocked), std::move(backwards)};
  if (!equal) return out;
  for (Index row = 0; row < parts[0].rows; ++row)
    for (const MergedPart& part : parts) interleaved.owners.emplace_back(part.name, row);
  out.push_back(std::move(interleaved));
  return out;
}

}  // namespace detail

/// The orders that a layer can meet; none for a layer whose tensors are never fused. qkv per head
/// needs one query head for each kv head, interleaved parts need equal sizes.
/// @pre the shape is legal
[[nodiscard]] inline std::vector<DiskOrder> disk_orders(const LayerSpec& s) {
  if (s.layer == "qkv") return detail::qkv_orders(s.qkv);
  if (s.layer == "mlp") return detail::merged_orders(gate_up(s.intermediate));
  if (s.layer == "merged") return detail::merged_orders(s.parts);
  return {};
}

}  // namespace tpsim::properties
