// SPDX-License-Identifier: MIT
// What the ranks hold after loading: the copies that weight_loader really made.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// One parameter of one rank.
struct HeldParam {
  std::string name;
  Shape shape;
  std::vector<Piece> pieces;  ///< by row, then column; no two overlap
  Runs unwritten;             ///< rows with an element that nothing was copied to
  Runs overwritten;           ///< rows with an element that was copied to twice
  Runs zeros = {};            ///< rows that were filled with zeros
};
/// All parameters of one rank, in the order of Subject::params.
using HeldRank = std::vector<HeldParam>;

/// One entry along a dimension of a param: which logical tensor, and which row (or column) of it.
/// Null tensor: nothing was written there.
struct HeldRun {
  Index begin = 0;  ///< first destination row (or column)
  Logical tensor;
  Runs source;
};

/// The first destination row of part `k` on `rank`, and the number of its rows.
[[nodiscard]] inline std::pair<Index, Index> part_rows(const DeclaredParam& p, std::size_t k,
                                                       std::size_t rank) {
  Index offset = 0;
  for (std::size_t i = 0; i < k; ++i) offset += p.parts[i].rows[rank].size();
  return {offset, p.parts[k].rows[rank].size()};
}

namespace detail {

/// One row that is a copy of the last row of the param's last part, whole?
[[nodiscard]] inline bool is_last_row(const DeclaredParam& declared, const Piece& p) {
  const Logical& tensor = declared.parts.back().tensor;
  return p.rows == 1 && p.tensor == tensor && p.src_row == tensor->shape.rows() - 1 && p.col == 0 &&
         p.src_col == 0 && p.cols == tensor->shape.cols();
}
/// Are the rows [begin, end) padding as it is declared, and no other rows zeros?
[[nodiscard]] inline bool is_padding(const DeclaredParam& declared, const HeldParam& held,
                                     Index begin, Index end) {
  if (declared.fill == Fill::zero) return held.zeros == Runs::range(begin, end);
  Index next = begin;
  for (const Piece& p : held.pieces) {
    if (p.row + p.rows <= begin) continue;
    if (p.row != next || !is_last_row(declared, p)) return false;
    ++next;
  }
  return next == end && held.zeros.empty();
}

inline void append_run(std::vector<HeldRun>& out, Index begin, const Logical& tensor,
                       const Runs& source) {
  if (!out.empty() && out.back().tensor == tensor && tensor &&
      out.back().begin + out.back().source.size() == begin) {
    out.back().source.append(source);
  } else {
    out.push_back({begin, tensor, source});
  }
}
}  // namespace detail

/// Where the destination rows [begin, end) come from, judged at column `col`.
[[nodiscard]] inline std::vector<HeldRun> held_rows(const HeldParam& p, Index begin, Index end,
                                                    Index col = 0) {
  std::vector<HeldRun> out;
  Index next = begin;
  for (const Piece& piece : p.pieces) {
    const Index from = std::max(begin, piece.row), to = std::min(end, piece.row + piece.rows);
    if (from >= to || col < piece.col || col >= piece.col + piece.cols) continue;
    if (from > next) detail::append_run(out, next, nullptr, Runs::range(0, from - next));
    Runs source;
    source.append(
        {piece.src_row + (from - piece.row) * piece.src_stride, to - from, piece.src_stride});
    detail::append_run(out, from, piece.tensor, source);
    next = to;
  }
  if (next < end) detail::append_run(out, next, nullptr, Runs::range(0, end - next));
  return out;
}

/// Where the destination columns of row `row` come from.
[[nodiscard]] inline std::vector<HeldRun> held_columns(const HeldParam& p, Index row = 0) {
  std::vector<HeldRun> out;
  Index next = 0;
  for (const Piece& piece : p.pieces) {
    if (row < piece.row || row >= piece.row + piece.rows) continue;
    if (piece.col > next) detail::append_run(out, next, nullptr, Runs::range(0, piece.col - next));
    detail::append_run(out, piece.col, piece.tensor,
                       Runs::range(piece.src_col, piece.src_col + piece.cols));
    next = piece.col + piece.cols;
  }
  if (next < p.shape.cols())
    detail::append_run(out, next, nullptr, Runs::range(0, p.shape.cols() - next));
  return out;
}

/// "q_proj.weight rows [0, 1024)" for the runs, at most `most` of them.
[[nodiscard]] inline std::string describe(const std::vector<HeldRun>& runs, std::string_view unit,
                                          std::size_t most = 3) {
  std::string out;
  for (std::size_t i = 0; i < runs.size() && i < most; ++i) {
    if (i > 0) out += ", ";
    out += runs[i].tensor
               ? runs[i].tensor->name + " " + std::string(unit) + " " + runs[i].source.str(3)
               : "nothing (never written)";
  }
  if (runs.size() > most) out += ", ... (" + std::to_string(runs.size()) + " runs)";
  return out;
}

}  // namespace tpsim
