// SPDX-License-Identifier: MIT
// Check `cover`: every element of every logical tensor is on the declared number of ranks, and
// every element of every parameter was written once.
#pragma once

#include <array>
#include <map>

#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {
namespace detail {

struct Rect {
  Index row0 = 0, row1 = 0, col0 = 0, col1 = 0;
};

inline void append_rects(std::vector<Rect>& out, const Runs& rows, const Runs& cols) {
  for (const Run& r : rows) {
    for (const Run& c : cols) {
      // A stride cuts the rectangle into single rows (or columns); canonical runs rarely have one.
      const Index rn = r.stride == 1 ? 1 : r.length, cn = c.stride == 1 ? 1 : c.length;
      for (Index i = 0; i < rn; ++i)
        for (Index j = 0; j < cn; ++j)
          out.push_back({r.at(i), r.at(i) + r.length / rn, c.at(j), c.at(j) + c.length / cn});
    }
  }
}

/// Below the rank's own rows, a copy of the row that pads them there.
[[nodiscard]] inline bool fills_padding(const DeclaredParam& declared, std::size_t rank,
                                        const Piece& p) {
  if (declared.fill != Fill::last || declared.padding_of(rank) == 0) return false;
  const auto [offset, size] = part_rows(declared, declared.parts.size() - 1, rank);
  return p.row >= offset + size && is_last_row(declared, p);
}

struct CoverDifference {
  Rect where;
  Index seen = 0, wanted = 0;
};

/// Rectangles of the plane where the two lists lie with different multiplicity.
[[nodiscard]] inline std::vector<CoverDifference> cover_differences(
    const std::vector<Rect>& seen, const std::vector<Rect>& wanted) {
  std::vector<Index> rows, cols;
  for (const auto* list : {&seen, &wanted})
    for (const Rect& r : *list) {
      rows.insert(rows.end(), {r.row0, r.row1});
      cols.insert(cols.end(), {r.col0, r.col1});
    }
  const auto unique = [](std::vector<Index>& v) {
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
  };
  unique(rows);
  unique(cols);
  if (rows.empty()) return {};
  const std::size_t width = cols.size();
  std::vector<Index> a(rows.size() * width), b(a.size());
  const auto at = [](const std::vector<Index>& v, Index x) {
    return static_cast<std::size_t>(std::lower_bound(v.begin(), v.end(), x) - v.begin());
  };
  const auto add = [&](const std::vector<Rect>& list, std::vector<Index>& grid) {
    for (const Rect& r : list)
      for (std::size_t i = at(rows, r.row0); i < at(rows, r.row1); ++i)
        for (std::size_t j = at(cols, r.col0); j < at(cols, r.col1); ++j) ++grid[i * width + j];
  };
  add(seen, a);
  add(wanted, b);
  std::vector<CoverDifference> out;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i)
    for (std::size_t j = 0; j + 1 < width; ++j) {
      const std::size_t k = i * width + j;
      if (a[k] == b[k]) continue;
      const Rect cell{rows[i], rows[i + 1], cols[j], cols[j + 1]};
      if (!out.empty() && out.back().seen == a[k] && out.back().wanted == b[k] &&
          out.back().where.row1 == cell.row0 && out.back().where.col0 == cell.col0 &&
          out.back().where.col1 == cell.col1)
        out.back().where.row1 = cell.row1;
      else
        out.push_back({cell, a[k], b[k]});
    }
  return out;
}

/// Entries of one kind: all, and those on exactly one rank.
struct UnitCount {
  const char* name;
  Index all = 0, once = 0;
};

[[nodiscard]] inline std::string on_ranks(Index n) {
  return n == 0 ? "on no rank" : "on " + std::to_string(n) + (n == 1 ? " rank" : " ranks");
}

}  // namespace detail

/// @param held  [rank][param]
[[nodiscard]] inline CheckResult check_cover(const Subject& subject,
                                             const std::vector<HeldRank>& held) {
  CheckResult result{.id = "cover"};
  std::map<std::string, std::vector<detail::Rect>> seen;
  for (std::size_t r = 0; r < held.size(); ++r)
    for (std::size_t k = 0; k < held[r].size(); ++k)
      for (const Piece& p : held[r][k].pieces) {
        if (detail::fills_padding(subject.params[k], r, p)) continue;
        Runs rows;
        rows.append({p.src_row, p.rows, p.src_stride});
        detail::append_rects(seen[p.tensor->name], rows,
                             Runs::range(p.src_col, p.src_col + p.cols));
      }

  std::array<detail::UnitCount, 4> units{
      {{"rows"}, {"columns"}, {"bias entries"}, {"entries of vectors"}}};
  std::string shared;
  for (const DeclaredParam& param : subject.params)
    for (const DeclaredPart& part : param.parts) {
      std::vector<detail::Rect> wanted;
      Index copies = 0;  // how often the ranks together hold an entry, counted along tp_dim
      for (std::size_t r = 0; r < held.size(); ++r) {
        detail::append_rects(wanted, part.rows[r], part.cols[r]);
        copies += param.tp_dim == 1 ? part.cols[r].size() : part.rows[r].size();
      }
      const Shape full = part.tensor->shape;
      const Index size = full.dim(param.tp_dim == 1 ? 1 : 0);
      detail::UnitCount& unit = units[full.rank() == 1    ? (param.name.ends_with("bias") ? 2U : 3U)
                                      : param.tp_dim == 1 ? 1U
                                                          : 0U];
      unit.all += size;
      if (copies == size)
        unit.once += size;
      else
        shared += (shared.empty() ? "" : "; ") + part.tensor->name + " on " +
                  std::to_string(copies / size) + " ranks each";
      for (const detail::CoverDifference& d :
           detail::cover_differences(seen[part.tensor->name], wanted)) {
        const bool by_column = param.tp_dim == 1;
        const Index from = by_column ? d.where.col0 : d.where.row0,
                    to = by_column ? d.where.col1 : d.where.row1;
        result.findings.push_back(
            {.check = "cover",
             .rank = -1,
             .tensor = part.tensor->name,
             .message = part.tensor->name + (by_column ? " columns " : " rows ") +
                        Runs::range(from, to).str() + " are " + detail::on_ranks(d.seen) +
                        ", wanted " + detail::on_ranks(d.wanted),
             .cause = d.seen == 0         ? "no rank reads them"
                      : d.seen > d.wanted ? "ranks read the same part"
                                          : "a rank reads another part, or nothing",
             .repair = "the ranks' offsets must step by the shard's size and cover the tensor"});
      }
    }
  for (const detail::UnitCount& unit : units) result.compared += unit.all;

  for (std::size_t r = 0; r < held.size(); ++r)
    for (const HeldParam& param : held[r]) {
      const std::string who = "rank " + std::to_string(r) + " " + param.name;
      if (!param.unwritten.empty())
        result.findings.push_back({"cover", static_cast<int>(r), param.name,
                                   who + ": rows " + param.unwritten.str() + " were never written",
                                   "no tensor was loaded there",
                                   "call weight_loader for every part of the parameter"});
      if (!param.overwritten.empty())
        result.findings.push_back(
            {"cover", static_cast<int>(r), param.name,
             who + ": rows " + param.overwritten.str() + " were written twice",
             "two copies overlap", "each part has its own offset in the parameter"});
    }
  const auto wrong = static_cast<Index>(result.findings.size());
  std::string once;
  for (const detail::UnitCount& unit : units)
    if (unit.once > 0)
      once += (once.empty() ? "" : ", ") + std::to_string(unit.once) + " of " +
              std::to_string(unit.all) + " " + unit.name;
  if (!once.empty()) once += " on exactly one rank";
  result.message = wrong > 0 ? std::to_string(wrong) + (wrong == 1 ? " range" : " ranges") +
                                   " on the wrong number of ranks or never written"
                             : once + (once.empty() || shared.empty() ? "" : "; ") + shared;
  return result;
}

}  // namespace tpsim
