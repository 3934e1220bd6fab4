// SPDX-License-Identifier: MIT
// A parameter without numbers: which rectangle of which full tensor lies where.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/core/rational.hpp>
#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// The same logical tensor? By name and shape, since each side may hold its own object.
[[nodiscard]] inline bool same_tensor(const Logical& a, const Logical& b) {
  return a == b || (a && b && a->key == b->key && a->name == b->name && a->shape == b->shape);
}

/// Where a range of a parameter's rows comes from. `tensor` is null when some column of these rows
/// was never written, or (`spliced`) when their columns come from several tensors or rows.
struct RowSource {
  Index row = 0, rows = 0;
  Logical tensor;
  Runs src_rows;  ///< canonical row of each row, in order
  Runs src_cols;  ///< canonical column of each column, in order
  bool spliced = false;
};

/// What the weight_loader's copies made of one parameter, [rows, cols] of this rank. Elements that
/// no copy wrote are poison; where two copies wrote, the later one holds and the rows are noted.
class SymbolicParam {
 public:
  SymbolicParam() = default;
  SymbolicParam(std::string_view name, Shape shape) : name_(name), shape_(shape) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Shape shape() const { return shape_; }
  /// The factor on every element: 1/tp for a bias that each rank adds.
  [[nodiscard]] Rational scale() const { return scale_; }
  void set_scale(Rational factor) { scale_ = factor; }

  /// Notes a copy. @pre the rectangle lies inside shape()
  void record(const Piece& piece) {
    if (piece.rows <= 0 || piece.cols <= 0) return;
    if (piece.row < row_end_) cut_out(piece);
    row_end_ = std::max(row_end_, piece.row + piece.rows);
    written_.push_back(piece);
  }

  /// Rectangles without overlap, by row, then column; neighbours that continue each other are one.
  /// Rows of zeros are not among them.
  [[nodiscard]] std::vector<Piece> pieces() const {
    std::vector<Piece> out;
    for (const Band& band : bands())
      for (Piece p : band.cells)
        if (!is_zeros(p.tensor)) out.push_back(std::move(p));
    return out;
  }
  /// Rows that were filled with zeros, rising.
  [[nodiscard]] Runs zeros() const {
    Runs rows;
    for (const RowSource& s : row_sources())
      if (is_zeros(s.tensor)) rows.append({s.row, s.rows, 1});
    return rows;
  }
  /// Rows of which an element was never written, rising.
  [[nodiscard]] Runs unwritten() const {
    Runs rows;
    for (const RowSource& s : row_sources())
      if (!s.tensor && !s.spliced) rows.append({s.row, s.rows, 1});
    return rows;
  }
  /// Rows of which an element was written more than once, rising.
  [[nodiscard]] Runs overwritten() const {
    std::vector<Run> sorted = twice_;
    std::sort(sorted.begin(), sorted.end(),
              [](const Run& a, const Run& b) { return a.begin < b.begin; });
    Runs rows;
    Index next = 0;
    for (const Run& run : sorted) {
      const Index begin = std::max(run.begin, next);
      rows.append({begin, run.begin + run.length - begin, 1});
      next = std::max(next, run.begin + run.length);
    }
    return rows;
  }
  /// The whole parameter, top to bottom, without gaps. Does not depend on the order of the copies.
  [[nodiscard]] std::vector<RowSource> row_sources() const {
    std::vector<RowSource> out;
    for (const Band& band : bands()) append(out, source(band));
    return out;
  }

 private:
  // Rows of which each cell spans all: the pieces between two cuts, left to right.
  struct Band {
    Index row = 0, rows = 0;
    std::vector<Piece> cells;
  };

  static Piece part(const Piece& p, Index row, Index row_end, Index col, Index col_end) {
    return {row,
            col,
            row_end - row,
            col_end - col,
            p.tensor,
            p.src_row + (row - p.row) * p.src_stride,
            p.src_col + (col - p.col),
            p.src_stride};
  }

  // Removes what `fresh` covers from the older pieces and notes the rows.
  void cut_out(const Piece& fresh) {
    const Index top = fresh.row, bottom = top + fresh.rows;
    const Index left = fresh.col, right = left + fresh.cols;
    std::vector<Piece> kept;
    kept.reserve(written_.size() + 1);
    for (Piece& old : written_) {
      const Index end = old.row + old.rows, col_end = old.col + old.cols;
      const Index r0 = std::max(top, old.row), r1 = std::min(bottom, end);
      const Index c0 = std::max(left, old.col), c1 = std::min(right, col_end);
      if (r0 >= r1 || c0 >= c1) {
        kept.push_back(std::move(old));
        continue;
      }
      twice_.push_back({r0, r1 - r0, 1});
      if (old.row < r0) kept.push_back(part(old, old.row, r0, old.col, col_end));
      if (r1 < end) kept.push_back(part(old, r1, end, old.col, col_end));
      if (old.col < c0) kept.push_back(part(old, r0, r1, old.col, c0));
      if (c1 < col_end) kept.push_back(part(old, r0, r1, c1, col_end));
    }
    written_ = std::move(kept);
  }

  // All rows, cut wherever a piece begins or ends.
  [[nodiscard]] std::vector<Band> bands() const {
    std::vector<Piece> pending = written_;
    std::sort(pending.begin(), pending.end(),
              [](const Piece& a, const Piece& b) { return a.row < b.row; });
    std::vector<Index> cuts{0, shape_.rows()};
    for (const Piece& p : pending) {
      cuts.push_back(p.row);
      cuts.push_back(p.row + p.rows);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

    std::vector<Band> out;
    std::vector<const Piece*> active;
    std::size_t next = 0;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      Band band{cuts[i], cuts[i + 1] - cuts[i], {}};
      std::erase_if(active, [&](const Piece* p) { return p->row + p->rows <= band.row; });
      for (; next < pending.size() && pending[next].row == band.row; ++next)
        active.push_back(&pending[next]);
      std::sort(active.begin(), active.end(),
                [](const Piece* a, const Piece* b) { return a->col < b->col; });
      for (const Piece* p : active) {
        Piece cell = part(*p, band.row, band.row + band.rows, p->col, p->col + p->cols);
        if (cell.rows == 1) cell.src_stride = 1;
        if (band.cells.empty() || !continues_right(band.cells.back(), cell))
          band.cells.push_back(std::move(cell));
        else
          band.cells.back().cols += cell.cols;
      }
      if (out.empty() || !grow_down(out.back(), band)) out.push_back(std::move(band));
    }
    return out;
  }

  static bool continues_right(const Piece& a, const Piece& b) {
    return a.col + a.cols == b.col && same_tensor(a.tensor, b.tensor) && a.src_row == b.src_row &&
           a.src_stride == b.src_stride && a.src_col + a.cols == b.src_col;
  }
  static Index step(const Piece& above, const Piece& below) {
    return below.src_row - (above.src_row + (above.rows - 1) * above.src_stride);
  }
  static bool continues_down(const Piece& a, const Piece& b) {
    const Index s = step(a, b);
    return a.col == b.col && a.cols == b.cols && a.src_col == b.src_col &&
           same_tensor(a.tensor, b.tensor) && s > 0 && (a.rows == 1 || s == a.src_stride) &&
           (b.rows == 1 || s == b.src_stride);
  }
  static bool grow_down(Band& above, const Band& below) {
    if (above.cells.size() != below.cells.size() ||
        !std::equal(above.cells.begin(), above.cells.end(), below.cells.begin(), continues_down))
      return false;
    for (std::size_t i = 0; i < above.cells.size(); ++i) {
      Piece& cell = above.cells[i];
      cell.src_stride = step(cell, below.cells[i]);
      cell.rows += below.rows;
    }
    above.rows += below.rows;
    return true;
  }

  [[nodiscard]] RowSource source(const Band& band) const {
    RowSource s{band.row, band.rows, nullptr, {}, {}, false};
    Index next = 0;
    for (const Piece& cell : band.cells) {
      if (cell.col != next) return {band.row, band.rows, nullptr, {}, {}, false};
      next += cell.cols;
      const Piece& first = band.cells.front();
      s.spliced |= !same_tensor(cell.tensor, first.tensor) || cell.src_row != first.src_row ||
                   cell.src_stride != first.src_stride;
      s.src_cols.append({cell.src_col, cell.cols, 1});
    }
    if (next != shape_.cols()) return {band.row, band.rows, nullptr, {}, {}, false};
    if (s.spliced) return {band.row, band.rows, nullptr, {}, {}, true};
    if (band.cells.empty()) return s;
    const Piece& first = band.cells.front();
    s.tensor = first.tensor;
    s.src_rows.append({first.src_row, band.rows, first.src_stride});
    return s;
  }
  static void append(std::vector<RowSource>& out, RowSource s) {
    if (!out.empty()) {
      RowSource& last = out.back();
      if (last.spliced == s.spliced && same_tensor(last.tensor, s.tensor) &&
          last.src_cols == s.src_cols) {
        last.rows += s.rows;
        last.src_rows.append(s.src_rows);
        return;
      }
    }
    out.push_back(std::move(s));
  }

  std::string name_;
  Shape shape_;
  Rational scale_ = 1;
  std::vector<Piece> written_;  // no overlap, any order
  std::vector<Run> twice_;      // rows that a later copy wrote again
  Index row_end_ = 0;
};

}  // namespace tpsim
