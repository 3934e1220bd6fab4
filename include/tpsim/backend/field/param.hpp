// SPDX-License-Identifier: MIT
// What a rank holds of its weights in the exact reading: where each rectangle came from.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/backend/simd/random_rows.hpp>
#include <tpsim/layout/pieces.hpp>

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

/// Reads a parameter by rows; safe to share between threads. The parameter must outlive it.
class ParamReader {
 public:
  ParamReader(const FieldParam& param, std::uint64_t seed) : param_(&param), bands_(param.pieces) {
    for (const Piece& piece : param.pieces) tensors_.push_back(tensor_key(seed, piece.tensor->key));
  }

  /// n elements from (row, col) on: in `buffer`, or where they are stored.
  [[nodiscard]] const gf61::Element* block(Index row, Index col, Index n,
                                           gf61::Element* buffer) const {
    const std::vector<std::size_t>& sources = bands_.covering(row);
    if (sources.empty() && !param_->stored.empty()) return stored(row, col);
    Index written = 0;
    for (const std::size_t i : sources) written += columns_inside(param_->pieces[i], col, n).second;
    if (written < n) fill_unwritten(row, col, n, buffer);
    for (const std::size_t i : sources) {
      const Piece& p = param_->pieces[i];
      const auto [begin, length] = columns_inside(p, col, n);
      if (is_zeros(p.tensor))
        std::fill_n(buffer + (begin - col), length, 0);
      else
        random_rows::fill_residues(row_key(tensors_[i], p.src_row + (row - p.row) * p.src_stride),
                                   p.src_col + begin - p.col, length, buffer + (begin - col));
    }
    return buffer;
  }

 private:
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
  PieceBands bands_;
  std::vector<std::uint64_t> tensors_;  ///< [piece]: key of its tensor under the seed
};

}  // namespace tpsim
