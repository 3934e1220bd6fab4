// SPDX-License-Identifier: MIT
// The arithmetic of declared cuts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <tpsim/core/divide.hpp>
#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/detail/text_cursor.hpp>

namespace tpsim::detail {

inline constexpr Index max_tp_size = Index{1} << 16;

/// A cut with numbers. Ranks come in groups of `copies` that hold the same entries; group j holds
/// `per` entries from j * per on, but for tensor_split, whose first `larger` groups hold per + 1.
struct Spread {
  Index entries = 1, unit = 1;  ///< entries * unit = rows
  Index per = 1, copies = 1, larger = 0;
  bool pads = false;

  /// First entry of group j, for j up to and including the number of groups.
  [[nodiscard]] Index begin(Index j) const {
    if (per > 0 && j > entries / per) return entries;  // j * per might overflow
    return std::min(j * per + std::min(j, larger), entries);
  }
  [[nodiscard]] Index group_of(Index entry) const {
    const Index in_larger = larger * (per + 1);
    return entry < in_larger ? entry / (per + 1) : larger + (entry - in_larger) / per;
  }
};

constexpr Index ceil_div(Index a, Index b) { return a / b + (a % b != 0 ? 1 : 0); }

/// Makes the spread, and appends what is broken; the spread is usable when nothing was.
[[nodiscard]] inline Spread make_spread(const Cut& cut, const std::vector<AxisExtent>& axes,
                                        Index tp, std::vector<Violation>& broken) {
  const std::size_t before = broken.size();
  const auto need = [&](bool ok, const char* rule, const std::string& message) {
    if (!ok) broken.push_back({rule, message});
  };
  need(tp >= 1 && tp <= max_tp_size, "cover",
       "tp size " + std::to_string(tp) + " is not from 1 to " + std::to_string(max_tp_size));
  need(cut.size >= 1 && cut.size <= max_layout_rows, "cover",
       "the cut's size " + std::to_string(cut.size) + " is not from 1 to 2^48");
  bool outermost = cut.axes.size() <= axes.size();
  for (std::size_t i = 0; outermost && i < cut.axes.size(); ++i)
    outermost = cut.axes[i] == axes[i].name;
  need(outermost, "names",
       "the cut '" + cut.str() + "' must name the outermost axes of " + str(axes));
  need(cut.rule == CutRule::whole || !cut.axes.empty(), "names", "the cut names no axis");

  Spread s;
  Index rows = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const Index n = axes[i].extent;
    if (n < 1 || !product_fits(rows, n)) {
      need(false, "cover",
           "axis '" + axes[i].name + "' of extent " + std::to_string(n) +
               (n < 1 ? " is below 1" : " makes over 2^48 rows"));
      break;
    }
    rows *= n;
    (i < cut.axes.size() ? s.entries : s.unit) *= n;
  }
  if (broken.size() > before) return s;

  std::string what;
  for (const std::string& axis : cut.axes) what += (what.empty() ? "" : "*") + axis;
  const Index n = s.entries;
  switch (cut.rule) {
    case CutRule::whole:
      s.per = n;
      s.copies = tp;
      break;
    case CutRule::replicated:
      if (tp > n) {
        if (tp % n != 0)
          need(false, "divide",
               std::to_string(tp) + " ranks over " + std::to_string(n) + " " + what + " leaves " +
                   std::to_string(tp % n));
        s.copies = tp / n;
        break;
      }
      [[fallthrough]];
    case CutRule::even:
      if (n % tp != 0) broken.push_back(does_not_divide(n, what, tp));
      s.per = std::max(n / tp, Index{1});
      break;
    case CutRule::padded: {
      if (cut.times_tp && !product_fits(cut.size, tp)) {
        need(false, "cover", what + " is padded to over 2^48 rows");
        break;
      }
      const Index multiple = cut.size * (cut.times_tp ? tp : 1);
      const Index padded = ceil_div(n, multiple) * multiple;
      need(product_fits(padded, s.unit), "cover", what + " is padded to over 2^48 rows");
      if (padded % tp != 0) broken.push_back(does_not_divide(padded, "padded " + what, tp));
      s.per = std::max(padded / tp, Index{1});
      s.pads = true;
      break;
    }
    case CutRule::block:
      s.per = ceil_div(ceil_div(n, cut.size), tp) * cut.size;
      break;
    case CutRule::chunk:
      s.per = ceil_div(n, tp);
      break;
    case CutRule::tensor_split:
      s.per = n / tp;
      s.larger = n % tp;
      break;
  }
  return s;
}

/// The spread of a legal cut. @throws LayoutError as cut_rows
[[nodiscard]] inline Spread legal_spread(const Cut& cut, const std::vector<AxisExtent>& axes,
                                         Index tp) {
  std::vector<Violation> broken;
  const Spread s = make_spread(cut, axes, tp, broken);
  if (broken.empty()) return s;
  constexpr Index most = 64;
  std::string legal;
  for (const Index size : legal_tp(cut, axes, most))
    legal += (legal.empty() ? "" : ", ") + std::to_string(size);
  throw LayoutError("tp " + std::to_string(tp) + " is not possible for the cut '" + cut.str() + "'",
                    broken, legal.empty() ? "" : "legal tp up to 64: " + legal);
}

}  // namespace tpsim::detail

namespace tpsim {

inline std::vector<Violation> cut_violations(const Cut& cut, const std::vector<AxisExtent>& axes,
                                             Index tp_size) {
  std::vector<Violation> broken;
  static_cast<void>(detail::make_spread(cut, axes, tp_size, broken));
  return broken;
}

inline std::vector<Index> legal_tp(const Cut& cut, const std::vector<AxisExtent>& axes,
                                   Index largest) {
  std::vector<Index> legal;
  for (Index tp = 1; tp <= std::min(largest, detail::max_tp_size); ++tp)
    if (cut_violations(cut, axes, tp).empty()) legal.push_back(tp);
  return legal;
}

inline CutResult cut_rows(const Cut& cut, const std::vector<AxisExtent>& axes, Index tp_size,
                          Index tp_rank) {
  const detail::Spread s = detail::legal_spread(cut, axes, tp_size);
  if (tp_rank < 0 || tp_rank >= tp_size)
    throw LayoutError("there is no rank " + std::to_string(tp_rank),
                      {{"cover", "ranks go from 0 to " + std::to_string(tp_size - 1)}});
  const Index begin = s.begin(tp_rank / s.copies), end = s.begin(tp_rank / s.copies + 1);
  return {Runs::range(begin * s.unit, end * s.unit), s.pads ? (s.per - (end - begin)) * s.unit : 0,
          cut.fill};
}

inline Index multiplicity(const Cut& cut, const std::vector<AxisExtent>& axes, Index tp_size) {
  return detail::legal_spread(cut, axes, tp_size).copies;
}

inline std::vector<Place> places(const Cut& cut, const std::vector<AxisExtent>& axes, Index tp_size,
                                 Index row) {
  const detail::Spread s = detail::legal_spread(cut, axes, tp_size);
  if (row < 0 || row >= s.entries * s.unit)
    throw LayoutError(
        "there is no row " + std::to_string(row),
        {{"cover", str(axes) + " has " + std::to_string(s.entries * s.unit) + " rows"}});
  const Index group = s.group_of(row / s.unit);
  std::vector<Place> out;
  for (Index copy = 0; copy < s.copies; ++copy)
    out.push_back({group * s.copies + copy, row - s.begin(group) * s.unit});
  return out;
}

}  // namespace tpsim
