// SPDX-License-Identifier: MIT
// Axes: what the names in layout expressions and cuts count.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// Axis name to extent: {"kv", 8}, {"g", 4}, {"d", 128}.
using Axes = std::map<std::string, Index, std::less<>>;

/// One axis of a logical tensor; a number in the expression is an axis named by its digits.
struct AxisExtent {
  std::string name;
  Index extent = 1;
  friend bool operator==(const AxisExtent&, const AxisExtent&) = default;
};

/// The axes of a label's rows, outermost first: all factors from the outside in, so k of
/// `kv*(q:g*d + k:d)` has kv, d. Its canonical row is the row-major index over them.
struct LabelAxes {
  std::string label;
  std::vector<AxisExtent> axes;
};

/// "kv*g*d"
[[nodiscard]] inline std::string str(const std::vector<AxisExtent>& axes) {
  std::string out;
  for (const AxisExtent& a : axes) out += (out.empty() ? "" : "*") + a.name;
  return out;
}

}  // namespace tpsim
