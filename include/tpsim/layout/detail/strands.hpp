// SPDX-License-Identifier: MIT
// A layout expression with extents, as one strided box of disk rows for each label.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layout/axes.hpp>
#include <tpsim/layout/layout_expr.hpp>
#include <tpsim/layout/runs.hpp>

namespace tpsim::detail {

/// Runs that a bound layout may have: over ten times the widest real one (a gate/up or head
/// interleave); keeps an untrusted file from filling the memory.
inline constexpr Index max_runs = Index{1} << 20;

struct StridedAxis {
  std::string name;
  Index extent = 1;
  Index stride = 1;  ///< disk rows from one index to the next
};

/// The rows of one label: base + sum of index * stride over its axes, outermost first.
struct Strand {
  std::string label;
  Index base = 0;
  std::vector<StridedAxis> axes;
  std::size_t column = 0;
};

/// Walks an expression bottom up, from the innermost factor outwards.
class StrandBuilder {
 public:
  StrandBuilder(const LayoutExpr& expr, const Axes& axes) : expr_(expr), axes_(axes) {}

  std::vector<Strand> build() {
    Block block = sum(expr_.parts(), /*in_parentheses=*/false);
    check_labels(block.strands);
    if (!broken_.empty()) refuse();
    return std::move(block.strands);
  }

 private:
  using Part = LayoutExpr::Part;
  using Factor = LayoutExpr::Factor;
  struct Block {
    Index rows = 0;
    std::vector<Strand> strands;
  };

  Block sum(const std::vector<Part>& parts, bool in_parentheses) {
    Block out;
    for (const Part& p : parts) {
      Block next = part(p, in_parentheses || parts.size() > 1);
      for (Strand& s : next.strands) {
        s.base += out.rows;
        out.strands.push_back(std::move(s));
      }
      out.rows += next.rows;
      if (out.rows > max_layout_rows) {
        broken("cover", "over 2^48 rows", p.column);
        out.rows = 1;
      }
    }
    return out;
  }

  Block part(const Part& part, bool in_sum) {
    Block out{1, {{part.label, 0, {}, part.column}}};
    if (in_sum && part.bare() && !axes_.contains(part.factors.front().axis)) {
      out.strands.front().label = part.factors.front().axis;
      return out;
    }
    for (auto factor = part.factors.rbegin(); factor != part.factors.rend(); ++factor) {
      if (!factor->group.empty()) {
        out = around(sum(factor->group, true), out, factor->column);
      } else {
        const Index extent = factor->axis.empty() ? factor->number : extent_of(*factor);
        const std::string name =
            factor->axis.empty() ? std::to_string(factor->number) : factor->axis;
        for (Strand& s : out.strands) s.axes.insert(s.axes.begin(), {name, extent, out.rows});
        grow(out, extent, factor->column);
      }
    }
    return out;
  }

  // The strands of `outer` with each of its rows replaced by the rows of `inner`, which is one
  // plain product.
  Block around(Block outer, const Block& inner, std::size_t column) {
    const std::vector<StridedAxis>& tail = inner.strands.front().axes;
    if (!product_fits(outer.rows, inner.rows)) broken("cover", "over 2^48 rows", column);
    const Index step = broken_.empty() ? inner.rows : 1;  // else only more errors are sought
    for (Strand& s : outer.strands) {
      s.base *= step;
      for (StridedAxis& a : s.axes) a.stride *= step;
      s.axes.insert(s.axes.end(), tail.begin(), tail.end());
    }
    outer.rows *= step;
    return outer;
  }

  void grow(Block& block, Index extent, std::size_t column) {
    if (product_fits(block.rows, extent))
      block.rows *= extent;
    else
      broken("cover", "over 2^48 rows", column);
  }

  Index extent_of(const Factor& factor) {
    const auto found = axes_.find(factor.axis);
    if (found == axes_.end()) {
      std::string known;
      for (const auto& [name, extent] : axes_) known += (known.empty() ? "" : ", ") + name;
      broken("names",
             "no axis '" + factor.axis + "'; the axes are " + (known.empty() ? "none" : known),
             factor.column);
      return 1;
    }
    if (found->second >= 1 && found->second <= max_layout_rows) return found->second;
    broken("cover",
           "axis '" + factor.axis + "' has extent " + std::to_string(found->second) +
               (found->second < 1 ? "; it must be at least 1" : ", over 2^48 rows"),
           factor.column);
    return 1;
  }

  void check_labels(const std::vector<Strand>& strands) {
    std::set<std::string> seen;
    for (const Strand& s : strands) {
      if (s.label.empty() && strands.size() > 1) {
        broken("names", "a part has no label, but others do (a name with an extent is an axis)",
               s.column);
      } else if (!seen.insert(s.label).second) {
        broken("names", "the label '" + s.label + "' is used twice", s.column);
      }
    }
  }

  void broken(std::string rule, std::string message, std::size_t column) {
    broken_.emplace(column, Violation{std::move(rule), std::move(message)});
  }

  [[noreturn]] void refuse() const {
    std::vector<std::size_t> columns;
    std::vector<Violation> violations;
    for (const auto& [column, violation] : broken_) {
      columns.push_back(column);
      if (std::find(violations.begin(), violations.end(), violation) == violations.end())
        violations.push_back(violation);
    }
    throw LayoutError("the layout does not multiply out:\n" + with_carets(expr_.text(), columns),
                      violations);
  }

  const LayoutExpr& expr_;
  const Axes& axes_;
  std::map<std::size_t, Violation> broken_;  // by column
};

[[nodiscard]] inline std::vector<Strand> strands(const LayoutExpr& expr, const Axes& axes) {
  return StrandBuilder(expr, axes).build();
}

/// The strand's disk rows in canonical order; takes its runs from `budget`.
[[nodiscard]] inline Runs runs_of(const Strand& strand, const LayoutExpr& expr, Index& budget) {
  std::vector<StridedAxis> axes;  // neighbours that form one stride merged
  for (const StridedAxis& a : strand.axes) {
    if (a.extent == 1) continue;
    if (!axes.empty() && axes.back().stride == a.extent * a.stride) {
      axes.back().extent *= a.extent;
      axes.back().stride = a.stride;
    } else {
      axes.push_back({{}, a.extent, a.stride});
    }
  }
  Run run{strand.base, 1, 1};
  if (!axes.empty()) {
    run.length = axes.back().extent;
    run.stride = axes.back().stride;
    axes.pop_back();
  }
  Index count = 1;
  for (const StridedAxis& a : axes) count *= a.extent;
  if (count > budget)
    throw LayoutError("the layout is too fragmented: " + expr.str(),
                      {{"cover", "over " + std::to_string(max_runs) + " runs of rows"}});
  budget -= count;

  Runs out;
  for (Index i = 0; i < count; ++i) {
    Index rest = i;
    run.begin = strand.base;
    for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
      run.begin += rest % a->extent * a->stride;
      rest /= a->extent;
    }
    out.append(run);
  }
  return out;
}

}  // namespace tpsim::detail
