// SPDX-License-Identifier: MIT
// Causes of fused tensors that were read in another order than they have on disk.
#pragma once

#include <algorithm>

#include <tpsim/layout/row_layout.hpp>
#include <tpsim/verify/causes/ranks_view.hpp>

namespace tpsim::detail {

/// The rows of part `k` in an order on disk.
using DiskOrder = std::vector<Runs>;

/// `times` blocks, each with its share of every part. 1: one part after the other.
[[nodiscard]] inline std::optional<DiskOrder> repeated(const DeclaredParam& param, Index times) {
  Index block = 0, offset = 0;
  for (const DeclaredPart& part : param.parts) {
    if (times < 1 || part.tensor->shape.rows() % times != 0) return std::nullopt;
    block += part.tensor->shape.rows() / times;
  }
  DiskOrder order;
  for (const DeclaredPart& part : param.parts) {
    const Index share = part.tensor->shape.rows() / times;
    Runs rows;
    for (Index i = 0; i < times; ++i) rows.append({i * block + offset, share});
    order.push_back(std::move(rows));
    offset += share;
  }
  return order;
}

struct NamedOrder {
  DiskOrder order;
  std::string name;
};

/// The orders in which fused tensors are known to lie, the plainest first.
[[nodiscard]] inline std::vector<NamedOrder> known_orders(const Subject& subject,
                                                          const DeclaredParam& param) {
  std::vector<NamedOrder> out;
  const auto add = [&](Index times, const std::string& name) {
    if (auto order = repeated(param, times)) out.push_back({std::move(*order), name});
  };
  add(1, "blocked (one part after the other)");
  if (subject.heads && subject.heads->kv_heads == subject.heads->heads)
    add(subject.heads->heads, "per head");
  else if (subject.heads)
    add(subject.heads->kv_heads, "per kv group");
  add(subject.tp, "in " + std::to_string(subject.tp) + " stripes (cut before)");
  const Index rows = param.parts[0].tensor->shape.rows();
  if (std::all_of(param.parts.begin(), param.parts.end(),
                  [&](const DeclaredPart& part) { return part.tensor->shape.rows() == rows; }))
    add(rows, "row by row");
  return out;
}

/// The disk rows that fill the parameter, top to bottom, up to the first that was never written.
[[nodiscard]] inline Runs disk_rows_held(const DiskTensor& t, const HeldParam& held) {
  Runs out;
  for (const HeldRun& run : held_rows(held, 0, held.shape.rows())) {
    const auto it = std::find(t.logical.begin(), t.logical.end(), run.tensor);
    if (it == t.logical.end()) break;
    const auto k = static_cast<std::size_t>(it - t.logical.begin());
    out.append(t.layout.parts()[k].disk_rows.select(run.source));
  }
  return out;
}

/// The fused tensor on disk that fills this parameter; null when the parts are separate.
[[nodiscard]] inline const DiskTensor* fused_tensor(const RanksView& v) {
  for (const DiskTensor& t : v.subject.tensors)
    if (t.param == v.param().name && t.layout.parts().size() > 1) return &t;
  return nullptr;
}

/// The reading of the fused tensor that gives what all ranks hold; nothing when no known one does.
[[nodiscard]] inline std::optional<Cause> fused_cause(const RanksView& v) {
  const DiskTensor* t = fused_tensor(v);
  if (t == nullptr) return std::nullopt;
  const DeclaredParam& param = v.param();
  const Index all = t->layout.rows(), tp = v.subject.tp;
  std::vector<Runs> held;
  for (std::size_t r = 0; r < v.ranks(); ++r) held.push_back(disk_rows_held(*t, v.at(r)));

  bool block = true;
  for (std::size_t r = 0; r < held.size(); ++r) {
    const Index begin = static_cast<Index>(r) * (all / tp);
    block = block && held[r].is_range(begin, begin + std::min(all / tp, v.at(r).shape.rows()));
  }
  DiskOrder right;
  for (const DeclaredPart& part : param.parts) right.push_back(t->layout.rows_of(part.label));
  const auto gives_what_is_held = [&](const DiskOrder& order) {
    for (std::size_t r = 0; r < held.size(); ++r) {
      Runs rows;
      for (std::size_t k = 0; k < order.size(); ++k)
        rows.append(order[k].select(param.parts[k].rows[r]));
      if (!(rows == held[r])) return false;
    }
    return true;
  };
  const std::vector<NamedOrder> known = known_orders(v.subject, param);
  std::string lies = "in another order";
  for (const NamedOrder& order : known)
    if (order.order == right) {
      lies = order.name;
      break;
    }
  if (block && tp > 1)  // on one rank that is a tensor read as blocked
    return Cause{"the fused tensor was cut as one block",
                 "split it into its parts by its layout, cut each part, then join them per rank"};
  for (const NamedOrder& order : known)
    if (!(order.order == right) && gives_what_is_held(order.order))
      return Cause{"the fused tensor was read as if it lay " + order.name + ", but it lies " +
                       lies + " on disk",
                   "give the loader the layout that the checkpoint has"};

  Runs sorted;
  for (const RowLayout::Part& part : t->layout.parts()) sorted.append(part.disk_rows);
  DiskOrder twice;
  for (const Runs& rows : right) twice.push_back(sorted.select(rows));
  if (gives_what_is_held(twice))
    return Cause{"the rows of the fused tensor were reordered twice",
                 "bring them into order once, at loading or at conversion"};
  if (param.parts.size() != 3) return std::nullopt;

  const Index third = all / 3, v_begin = std::min(2 * third, all - right[2].size());
  const DiskOrder thirds{right[0], Runs::range(third, third + right[1].size()),
                         Runs::range(v_begin, v_begin + right[2].size())};
  if (gives_what_is_held(thirds))
    return Cause{"the fused tensor was taken for three equal parts",
                 "k begins after all query heads, v after all kv heads of k"};
  const Index q = param.parts[0].rows[0].size(), k = q + param.parts[1].rows[0].size();
  const DiskOrder local{right[0], Runs::range(q, q + right[1].size()),
                        Runs::range(k, k + right[2].size())};
  if (gives_what_is_held(local))
    return Cause{"k and v were looked for behind the rank's own heads, not behind all",
                 "offsets on disk come from the model's numbers of heads, not from the rank's"};
  return std::nullopt;
}

}  // namespace tpsim::detail
