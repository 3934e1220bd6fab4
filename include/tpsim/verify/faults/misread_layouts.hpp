// SPDX-License-Identifier: MIT
// Fused tensors that lie in one order on disk and are read as if they lay in another.
#pragma once

#include <algorithm>

#include <tpsim/verify/declare.hpp>
#include <tpsim/verify/faults/fault.hpp>

namespace tpsim::detail {

// Orders on disk. ---------------------------------------------------------------------------------

[[nodiscard]] inline std::string kv_group_layout(const LayerSpec& /*spec*/) {
  return "kv*(q:g*d + k:d + v:m)";
}
[[nodiscard]] inline std::string row_by_row_layout(const LayerSpec& /*spec*/) {
  return "i*(gate + up)";
}
[[nodiscard]] inline std::string interleaved_layout(const LayerSpec& s) {
  return s.layer == "qkv" ? kv_group_layout(s) : row_by_row_layout(s);
}

/// As ranks of a training run hold it, one rank after the other: as many as here, or as there are
/// kv heads when ranks share them.
[[nodiscard]] inline std::string striped_layout(const LayerSpec& s) {
  Index stripes = s.tp;
  std::vector<MergedPart> parts = s.layer == "mlp" ? gate_up(s.intermediate) : s.parts;
  if (s.layer == "qkv") {
    const QkvShape& q = s.qkv;
    if (q.kv_heads % s.tp != 0) stripes = q.kv_heads;
    parts = {{"q", q.heads * q.head_dim},
             {"k", q.kv_heads * q.head_dim},
             {"v", q.kv_heads * q.v_head()}};
  }
  std::string out;
  for (const MergedPart& part : parts)
    out += (out.empty() ? "" : " + ") + part.name + ":" + std::to_string(part.rows / stripes);
  return std::to_string(stripes) + "*(" + out + ")";
}

/// The fused tensor lies so on disk, unless a checkpoint has fixed another order.
[[nodiscard]] inline std::function<LayerSpec(LayerSpec)> stored_as(
    std::string (*layout)(const LayerSpec&)) {
  return [layout](LayerSpec s) {
    if (s.disk.empty() || s.values.empty()) s.disk = layout(s);
    return s;
  };
}

// Readings of them. -------------------------------------------------------------------------------

/// A fused tensor, weight or bias, under the layout that `change` makes of its own.
template <class Change>
[[nodiscard]] Variation misread(Change change) {
  return {.before_load = [change](const DiskTensor& t, const Subject&) {
    DiskTensor other = t;
    if (t.layout.parts().size() > 1) other.layout = change(t.layout);
    return std::optional(std::move(other));
  }};
}
[[nodiscard]] inline Variation read_as(const std::string& text, const LayerSpec& s) {
  RowLayout layout = bind_layout(LayoutExpr::parse(text), axes_for(s));
  return misread([layout](const RowLayout& /*right*/) { return layout; });
}
[[nodiscard]] inline Variation read_as_blocked(const LayerSpec& s) {
  return read_as(blocked_layout(s), s);
}
[[nodiscard]] inline Variation read_as_stripes(const LayerSpec& s) {
  return read_as(striped_layout(s), s);
}
[[nodiscard]] inline Variation read_row_by_row(const LayerSpec& s) {
  return read_as(row_by_row_layout(s), s);
}

/// q, k and v of one head next to each other, however many query heads read a kv head. Under
/// grouped queries the parts get other sizes than they have.
[[nodiscard]] inline Variation read_as_per_head(const LayerSpec& s) {
  const QkvShape& shape = s.qkv;
  const Index d = shape.head_dim, m = shape.v_head(), block = 2 * d + m;
  const Index rows = shape.heads * d + shape.kv_heads * (d + m);
  Runs q, k, v;
  for (Index row = 0; row + block <= rows; row += block) {
    q.append({row, d});
    k.append({row + d, d});
    v.append({row + 2 * d, m});
  }
  RowLayout layout({{"q", q}, {"k", k}, {"v", v}});
  return misread([layout](const RowLayout& /*right*/) { return layout; });
}

/// k is looked for after one third of the rows, v after two, as where all parts are equal.
[[nodiscard]] inline Variation read_as_equal_thirds(const LayerSpec& s) {
  const QkvShape& shape = s.qkv;
  const Index q = shape.heads * shape.head_dim, k = shape.kv_heads * shape.head_dim,
              v = shape.kv_heads * shape.v_head(), third = (q + k + v) / 3;
  const Index v_begin = std::min(2 * third, q + k);
  RowLayout layout({{"q", Runs::range(0, q)},
                    {"k", Runs::range(third, third + k)},
                    {"v", Runs::range(v_begin, v_begin + v)}});
  return misread([layout](const RowLayout& /*right*/) { return layout; });
}

/// The rows are sorted into their parts, and the sorted rows are sorted again.
[[nodiscard]] inline Variation reordered_twice(const LayerSpec& /*spec*/) {
  return misread([](const RowLayout& right) {
    Runs sorted;  // element i: the disk row that the first pass brings to row i
    for (const RowLayout::Part& part : right.parts()) sorted.append(part.disk_rows);
    std::vector<RowLayout::Part> parts = right.parts();
    for (RowLayout::Part& part : parts) part.disk_rows = sorted.select(part.disk_rows);
    return RowLayout(std::move(parts));
  });
}

}  // namespace tpsim::detail
