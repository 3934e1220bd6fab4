// SPDX-License-Identifier: MIT
// From a row layout to what every stored row stands for.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tpsim/layout/full_tensor.hpp>
#include <tpsim/layout/row_layout.hpp>

namespace tpsim {

/// StoredTensor::identity of a tensor with this layout: sorted, contiguous, covering [0, rows),
/// neighbours merged.
/// @param logical_of  label -> Logical, e.g. "q" -> q_proj.weight; called once for each part
/// @throws LayoutError with every broken rule: `names` (a null Logical), `cover` (a logical tensor
///   whose rows differ from its part's, parts that do not partition the rows)
template <class LogicalOf>
  requires std::same_as<std::invoke_result_t<LogicalOf&, std::string_view>, Logical>
[[nodiscard]] std::vector<RowIdentity> row_identity(const RowLayout& layout,
                                                    LogicalOf&& logical_of) {
  struct Segment {
    Index begin, length, canonical;
    std::size_t part;
  };
  std::vector<Segment> segments;  // light to sort: an interleaved tensor has one for each row
  std::vector<Logical> logicals;
  std::vector<Violation> violations;
  for (const RowLayout::Part& part : layout.parts()) {
    const Logical& logical = logicals.emplace_back(logical_of(std::string_view(part.label)));
    if (!logical)
      violations.push_back({"names", "no logical tensor for the label '" + part.label + "'"});
    else if (logical->shape.rows() != part.disk_rows.size())
      violations.push_back({"cover", logical->name + " has " +
                                         std::to_string(logical->shape.rows()) +
                                         " rows, the label '" + part.label + "' " +
                                         std::to_string(part.disk_rows.size())});
    Index canonical = 0;
    for (const Run& run : part.disk_rows) {
      const Index step = run.stride == 1 ? run.length : 1;
      for (Index i = 0; i < run.length; i += step)
        segments.push_back({run.at(i), step, canonical + i, logicals.size() - 1});
      canonical += run.length;
    }
  }
  const std::string subject = "the layout does not say what each row is";
  if (!violations.empty()) throw LayoutError(subject, violations);

  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  std::vector<RowIdentity> rows;
  Index next = 0;
  for (const Segment& s : segments) {
    if (s.begin != next)
      throw LayoutError(
          subject, {{"cover", "row " + std::to_string(std::min(s.begin, next)) +
                                  (s.begin < next ? " has two meanings" : " has no meaning")}});
    next += s.length;
    if (!rows.empty() && rows.back().tensor == logicals[s.part] &&
        rows.back().src_begin + rows.back().length == s.canonical)
      rows.back().length += s.length;
    else
      rows.push_back({s.begin, s.length, logicals[s.part], s.canonical, 1});
  }
  return rows;
}

}  // namespace tpsim
