// SPDX-License-Identifier: MIT
// Layout expressions with extents: which disk rows hold which logical tensor's rows.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/layout/axes.hpp>
#include <tpsim/layout/detail/strands.hpp>
#include <tpsim/layout/layout_expr.hpp>
#include <tpsim/layout/row_layout.hpp>

namespace tpsim {

/// The rows of every label, as few runs: a label costs the product of its outer extents that do
/// not merge into one stride (kv runs for q of a grouped QKV, one for gate of `i*(gate + up)`).
/// @throws LayoutError with every broken rule and a caret under each place: `names` (an axis
///   without extent, a label used twice, labelled and unlabelled parts mixed), `cover` (an extent
///   below 1, over 2^48 rows, over 2^20 runs)
/// @post the labels' rows partition [0, rows())
[[nodiscard]] inline RowLayout bind_layout(const LayoutExpr& expr, const Axes& axes) {
  std::vector<RowLayout::Part> parts;
  Index budget = detail::max_runs;
  for (const detail::Strand& strand : detail::strands(expr, axes))
    parts.push_back({strand.label, detail::runs_of(strand, expr, budget)});
  return RowLayout(std::move(parts));
}

/// The canonical axes of every label, in the order of the expression.
/// @throws LayoutError as bind_layout does
[[nodiscard]] inline std::vector<LabelAxes> label_axes(const LayoutExpr& expr, const Axes& axes) {
  std::vector<LabelAxes> out;
  for (const detail::Strand& strand : detail::strands(expr, axes)) {
    out.push_back({strand.label, {}});
    for (const detail::StridedAxis& a : strand.axes) out.back().axes.push_back({a.name, a.extent});
  }
  return out;
}

/// The same for one label. @throws LayoutError as bind_layout does, and (names) for an unknown
/// label
[[nodiscard]] inline std::vector<AxisExtent> axes_of(const LayoutExpr& expr, const Axes& axes,
                                                     std::string_view label) {
  std::string known;
  for (LabelAxes& each : label_axes(expr, axes)) {
    if (each.label == label) return std::move(each.axes);
    known += (known.empty() ? "'" : ", '") + each.label + "'";
  }
  throw LayoutError("the layout has no part '" + std::string(label) + "'",
                    {{"names", "its parts are " + known}});
}

}  // namespace tpsim
