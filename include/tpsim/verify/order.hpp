// SPDX-License-Identifier: MIT
// Check `order`: every row and column that a rank holds is the declared one, in its own place.
#pragma once

#include <tpsim/verify/cause.hpp>
#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {
namespace detail {

/// The rows or columns of one part on one rank, as text, when they are not the declared ones.
struct OrderDifference {
  std::string found, wanted;
  std::vector<HeldRun> runs;
};

[[nodiscard]] inline std::optional<OrderDifference> rows_differ(const HeldParam& held,
                                                                const DeclaredPart& part,
                                                                std::size_t rank, Index offset) {
  const Runs& wanted = part.rows[rank];
  // Pieces may differ from column to column: look at each column range by itself.
  for (const HeldRun& columns : held_columns(held, offset)) {
    std::vector<HeldRun> rows = held_rows(held, offset, offset + wanted.size(), columns.begin);
    if (rows.size() == 1 && rows[0].tensor == part.tensor && rows[0].source == wanted) continue;
    if (wanted.empty() && rows.empty()) continue;
    return OrderDifference{describe(rows, "rows"), part.tensor->name + " rows " + wanted.str(),
                           std::move(rows)};
  }
  return std::nullopt;
}

[[nodiscard]] inline std::optional<OrderDifference> columns_differ(const HeldParam& held,
                                                                   const DeclaredPart& part,
                                                                   std::size_t rank, Index offset) {
  const Runs& wanted = part.cols[rank];
  Index row = offset;
  const Index end = offset + part.rows[rank].size();
  while (row < end) {  // one look for each band of rows that one piece makes
    std::vector<HeldRun> columns = held_columns(held, row);
    if (columns.size() != 1 || !(columns[0].source == wanted))
      return OrderDifference{describe(columns, "columns"),
                             part.tensor->name + " columns " + wanted.str(), std::move(columns)};
    Index next = end;
    for (const Piece& p : held.pieces)
      if (p.row <= row && row < p.row + p.rows) next = std::min(next, p.row + p.rows);
    row = next;
  }
  return std::nullopt;
}

/// @param rows  of the rank's own: padding begins there
[[nodiscard]] inline Finding padding_differs(const DeclaredParam& param, const HeldParam& have,
                                             std::size_t rank, Index rows) {
  const Index end = have.shape.rows();
  Finding f{"order",
            static_cast<int>(rank),
            param.name,
            "rank " + std::to_string(rank) + " " + param.name + ": rows " +
                Runs::range(rows, end).str() + " are padding, but ",
            "padding does not come last",
            "fill the rows after the rank's own with zeros"};
  if (param.fill == Fill::zero) {
    f.message += "zeros are in rows " + have.zeros.str();
    return f;
  }
  const Logical& tensor = param.parts.back().tensor;
  const std::string last = "row " + std::to_string(tensor->shape.rows() - 1);
  f.message += have.zeros == Runs::range(rows, end)
                   ? "zeros, wanted " + tensor->name + " " + last
                   : "hold " + describe(held_rows(have, rows, end), "rows") + ", wanted " + last;
  f.cause = "the padding is no copy of the last row";
  f.repair = "fill the rows after the rank's own with the tensor's last row";
  return f;
}

}  // namespace detail

/// @param held  [rank][param]
[[nodiscard]] inline CheckResult check_order(const Subject& subject,
                                             const std::vector<HeldRank>& held) {
  CheckResult result{.id = "order"};
  bool columns = false;
  for (std::size_t p = 0; p < subject.params.size(); ++p) {
    const DeclaredParam& param = subject.params[p];
    columns = columns || param.tp_dim == 1;
    for (std::size_t r = 0; r < held.size(); ++r) {
      const HeldParam& have = held[r][p];
      Index rows = 0;
      for (std::size_t k = 0; k < param.parts.size(); ++k) {
        const DeclaredPart& part = param.parts[k];
        const auto [offset, size] = part_rows(param, k, r);
        rows += size;
        result.compared += param.tp_dim == 1 ? part.cols[r].size() : size;
        if (offset + size > have.shape.rows()) continue;  // told below
        auto difference = detail::rows_differ(have, part, r, offset);
        if (!difference) difference = detail::columns_differ(have, part, r, offset);
        if (!difference) continue;
        const std::string who =
            "rank " + std::to_string(r) + " " + (part.label.empty() ? param.name : part.label);
        const Cause cause = likely_cause(subject, held, p, k, r);
        result.findings.push_back(
            {"order", static_cast<int>(r), param.name,
             who + ": holds " + difference->found + ", wanted " + difference->wanted, cause.cause,
             cause.repair});
      }
      const Index padding = param.padding_of(r);
      if (padding > 0 && rows + padding == have.shape.rows() && have.unwritten.empty() &&
          !detail::is_padding(param, have, rows, rows + padding))
        result.findings.push_back(detail::padding_differs(param, have, r, rows));
      rows += padding;
      if (rows != have.shape.rows()) {
        const auto cause = detail::size_cause({subject, held, p}, r).value_or(Cause{});
        result.findings.push_back({"order", static_cast<int>(r), param.name,
                                   "rank " + std::to_string(r) + " " + param.name + ": has " +
                                       std::to_string(have.shape.rows()) + " rows, wanted " +
                                       std::to_string(rows),
                                   cause.cause, cause.repair});
      }
    }
  }
  result.message = !result.findings.empty() ? result.findings.front().message
                   : columns                ? "every row and column at its own place"
                                            : "every row at its own place";
  return result;
}

}  // namespace tpsim
