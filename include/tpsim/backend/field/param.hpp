// SPDX-License-Identifier: MIT
// What a rank holds of its weights in the exact reading: where each rectangle came from.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/backend/simd/random_rows.hpp>
#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// A parameter of shape [rows, cols] (or [rows]: one column). An element comes from the piece that
/// covers it, else from `stored`, else it is poison. Only computed parameters are stored.
struct FieldParam {
  Shape shape;
  std::uint64_t poison = 0;           ///< key of the unwritten elements
  std::vector<Piece> pieces;          ///< no two overlap
  std::vector<gf61::Element> stored;  ///< empty, or all elements in row-major order
};

/// Element (row, col) of a logical tensor under a seed: uniform in F up to the bias of reduce().
[[nodiscard]] inline gf61::Element field_weight(std::uint64_t seed, const LogicalTensor& tensor,
                                                Index row, Index col) {
  return gf61::reduce(random_bits(row_key(tensor_key(seed, tensor.key), row), col));
}

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
inline void overwrite(FieldParam& param, Index row, Index col, Index rows, Index cols,
                      std::vector<Piece> from) {
  if (rows == 0 || cols == 0) return;
  const auto meets = [&](const Piece& old) {
    return old.row < row + rows && row < old.row + old.rows && old.col < col + cols &&
           col < old.col + old.cols;
  };
  const auto kept = std::stable_partition(param.pieces.begin(), param.pieces.end(),
                                          [&](const Piece& old) { return !meets(old); });
  std::vector<Piece> added;
  for (auto old = kept; old != param.pieces.end(); ++old)
    append_outside(*old, row, col, rows, cols, added);
  param.pieces.erase(kept, param.pieces.end());
  for (Piece& piece : from) {
    piece.row += row;
    piece.col += col;
    added.push_back(std::move(piece));
  }
  param.pieces.insert(param.pieces.end(), std::make_move_iterator(added.begin()),
                      std::make_move_iterator(added.end()));
}

/// Reads a parameter by rows; safe to share between threads. The parameter must outlive it.
class ParamReader {
 public:
  ParamReader(const FieldParam& param, std::uint64_t seed) : param_(&param) {
    for (const Piece& piece : param.pieces) {
      begins_.push_back(piece.row);
      begins_.push_back(piece.row + piece.rows);
    }
    begins_.push_back(0);
    std::sort(begins_.begin(), begins_.end());
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    bands_.resize(begins_.size());
    for (const Piece& piece : param.pieces)
      for (std::size_t b = band(piece.row); b < begins_.size(); ++b) {
        if (begins_[b] >= piece.row + piece.rows) break;
        bands_[b].push_back({&piece, tensor_key(seed, piece.tensor->key)});
      }
  }

  /// n elements from (row, col) on: in `buffer`, or where they are stored.
  [[nodiscard]] const gf61::Element* block(Index row, Index col, Index n,
                                           gf61::Element* buffer) const {
    const std::vector<Source>& sources = bands_[band(row)];
    if (sources.empty() && !param_->stored.empty()) return stored(row, col);
    Index written = 0;
    for (const Source& s : sources) written += std::max<Index>(0, overlap(*s.piece, col, n).second);
    if (written < n) fill_unwritten(row, col, n, buffer);
    for (const Source& s : sources) {
      const Piece& p = *s.piece;
      const auto [begin, length] = overlap(p, col, n);
      random_rows::fill_residues(row_key(s.tensor, p.src_row + (row - p.row) * p.src_stride),
                                 p.src_col + begin - p.col, length, buffer + (begin - col));
    }
    return buffer;
  }

 private:
  struct Source {
    const Piece* piece;
    std::uint64_t tensor;  ///< key of its tensor under the seed
  };
  [[nodiscard]] std::size_t band(Index row) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) -
                                    begins_.begin() - 1);
  }
  /// First column and length of the piece inside [col, col + n); the length may be negative.
  [[nodiscard]] static std::pair<Index, Index> overlap(const Piece& p, Index col, Index n) {
    const Index begin = std::max(col, p.col);
    return {begin, std::min(col + n, p.col + p.cols) - begin};
  }
  [[nodiscard]] const gf61::Element* stored(Index row, Index col) const {
    return param_->stored.data() + row * param_->shape.cols() + col;
  }
  void fill_unwritten(Index row, Index col, Index n, gf61::Element* out) const {
    if (!param_->stored.empty()) {
      std::copy_n(stored(row, col), n, out);
      return;
    }
    const std::uint64_t key = row_key(param_->poison, row);
    random_rows::fill_residues(key, col, n, out);
    // A zero is drawn again among the others, so that none of them becomes more likely.
    for (Index i = 0; i < n; ++i)
      if (out[i] == 0) out[i] = 1 + random_bits(mix(key), col + i) % (gf61::p - 1);
  }

  const FieldParam* param_;
  std::vector<Index> begins_;               ///< first rows of the bands, ascending, from 0
  std::vector<std::vector<Source>> bands_;  ///< the pieces that cover the rows of each band
};

}  // namespace tpsim
