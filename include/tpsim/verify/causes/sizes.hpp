// SPDX-License-Identifier: MIT
// Causes of parameters that have another size than the declared cut has.
#pragma once

#include <tpsim/verify/causes/ranks_view.hpp>

namespace tpsim::detail {

/// Which other head_dim (when even the query heads did not fit), or number of kv heads, gives a
/// parameter of as many rows.
[[nodiscard]] inline std::optional<Cause> other_heads(const RanksView& v, std::size_t rank) {
  const QkvShape& model = *v.subject.heads;
  const Index rows = v.at(rank).shape.rows(), tp = v.subject.tp;
  bool q = false;
  for (const Piece& piece : v.at(rank).pieces) q = q || piece.tensor == v.param().parts[0].tensor;
  QkvShape even = model;
  even.head_dim = model.hidden / model.heads;
  if (!q && even.head_dim != model.head_dim && local_rows(even, tp) == rows)
    return Cause{"head_dim was taken as hidden / heads (" + std::to_string(even.head_dim) +
                     "), it is " + std::to_string(model.head_dim),
                 "take head_dim from the model's config"};
  std::string counts;
  QkvShape other = model;
  for (other.kv_heads = 1; other.kv_heads <= model.heads; ++other.kv_heads)
    if (qkv_violations(other, tp).empty() && local_rows(other, tp) == rows)
      counts += (counts.empty() ? "" : " or ") + std::to_string(other.kv_heads);
  if (counts.empty()) return std::nullopt;
  return Cause{"the layer was made for " + counts + " kv heads, the model has " +
                   std::to_string(model.kv_heads),
               "take the number of kv heads from the model's config"};
}

/// Nothing when the parameter has the size that it must have.
[[nodiscard]] inline std::optional<Cause> size_cause(const RanksView& v, std::size_t rank) {
  const Shape have = v.at(rank).shape, wanted = v.wanted_shape(rank), full = v.param().full_shape;
  if (have == wanted) return std::nullopt;
  if (have.size() == 0) return Cause{"the layer was not built", "see what it refused"};
  const bool filled = v.at(rank).unwritten.empty();
  if (!filled && v.subject.heads)
    if (auto cause = other_heads(v, rank)) return cause;
  if (have == full)
    return Cause{"tp was taken as 1: the rank holds the whole tensor",
                 "divide the cut dimension by tp_size"};
  if (const auto dim = v.param().tp_dim; dim && full.rank() == 2) {
    const int other = 1 - *dim;
    if (have.dim(*dim) == full.dim(*dim) && have.dim(other) == full.dim(other) / v.subject.tp)
      return Cause{std::string("the weight was cut along its ") +
                       (other == 1 ? "columns" : "rows") + ", not along its " + v.unit(),
                   "column parallel cuts dimension 0 of a weight [out, in], row parallel dimension "
                   "1"};
  }
  return Cause{"the parameter was made for another cut", "divide each part by tp_size"};
}

}  // namespace tpsim::detail
