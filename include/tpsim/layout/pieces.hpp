// SPDX-License-Identifier: MIT
// A parameter as the list of the copies that made it.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// What is left of `old` outside the rectangle [row, row + rows) x [col, col + cols): up to four
/// pieces.
inline void append_outside(const Piece& old, Index row, Index col, Index rows, Index cols,
                           std::vector<Piece>& out) {
  const auto part = [&](Index top, Index bottom, Index left, Index right) {
    if (top >= bottom || left >= right) return;
    Piece p = old;
    p.row = top, p.rows = bottom - top, p.col = left, p.cols = right - left;
    p.src_row += (top - old.row) * old.src_stride;
    p.src_col += left - old.col;
    out.push_back(std::move(p));
  };
  const Index bottom = old.row + old.rows, right = old.col + old.cols;
  const Index top_in = std::clamp(row, old.row, bottom);
  const Index bottom_in = std::clamp(row + rows, top_in, bottom);
  part(old.row, top_in, old.col, right);
  part(top_in, bottom_in, old.col, std::clamp(col, old.col, right));
  part(top_in, bottom_in, std::clamp(col + cols, old.col, right), right);
  part(bottom_in, bottom, old.col, right);
}

/// Puts `from` (without overlap, inside the given rectangle after a move by its corner) over
/// whatever was written there before: the later copy wins.
/// @post no two of `pieces` overlap, if none did before
inline void overwrite(std::vector<Piece>& pieces, Index row, Index col, Index rows, Index cols,
                      std::vector<Piece> from) {
  if (rows == 0 || cols == 0) return;
  const auto meets = [&](const Piece& old) {
    return old.row < row + rows && row < old.row + old.rows && old.col < col + cols &&
           col < old.col + old.cols;
  };
  const auto kept = std::stable_partition(pieces.begin(), pieces.end(),
                                          [&](const Piece& old) { return !meets(old); });
  std::vector<Piece> added;
  for (auto old = kept; old != pieces.end(); ++old)
    append_outside(*old, row, col, rows, cols, added);
  pieces.erase(kept, pieces.end());
  for (Piece& piece : from) {
    piece.row += row;
    piece.col += col;
    added.push_back(std::move(piece));
  }
  pieces.insert(pieces.end(), std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
}

/// Which pieces cover a row, found in logarithmic time; safe to share between threads. The pieces
/// must outlive it and stay where they are.
class PieceBands {
 public:
  explicit PieceBands(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      begins_.push_back(piece.row);
      begins_.push_back(piece.row + piece.rows);
    }
    begins_.push_back(0);
    std::sort(begins_.begin(), begins_.end());
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    bands_.resize(begins_.size());
    for (std::size_t i = 0; i < pieces.size(); ++i)
      for (std::size_t b = band(pieces[i].row); b < begins_.size(); ++b) {
        if (begins_[b] >= pieces[i].row + pieces[i].rows) break;
        bands_[b].push_back(i);
      }
  }
  /// Positions in the list of the pieces that have elements in `row`.
  [[nodiscard]] const std::vector<std::size_t>& covering(Index row) const {
    return bands_[band(row)];
  }

 private:
  [[nodiscard]] std::size_t band(Index row) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) -
                                    begins_.begin() - 1);
  }
  std::vector<Index> begins_;                    ///< first rows of the bands, ascending, from 0
  std::vector<std::vector<std::size_t>> bands_;  ///< the pieces that cover the rows of each band
};

/// First column of the piece inside [col, col + n), and how many there are: 0 for none.
[[nodiscard]] inline std::pair<Index, Index> columns_inside(const Piece& p, Index col, Index n) {
  const Index begin = std::max(col, p.col);
  return {begin, std::max<Index>(0, std::min(col + n, p.col + p.cols) - begin)};
}

}  // namespace tpsim
