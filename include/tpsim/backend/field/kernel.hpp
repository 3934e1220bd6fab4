// SPDX-License-Identifier: MIT
// The streaming product x w^T over GF(2^61-1).
//
// Rows of w are outermost and come in blocks of columns, stored or generated just then; the tokens
// are innermost and share the block while it is in the L1 cache. Exact arithmetic: the result does
// not depend on blocks, order or threads.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <tpsim/backend/field/ifma.hpp>

namespace tpsim::gf61 {

/// Columns that are streamed at a time (4 KiB of one row) and rows that pass over the same block
/// of x before the next one is read.
inline constexpr Index block_cols = 512;
inline constexpr Index block_rows = 8;
/// Tokens that share one load of a weight: four 128-bit accumulators fill the registers.
inline constexpr Index group_tokens = 4;
/// Below this many products threads cost more than they give.
inline constexpr Index parallel_macs = Index{1} << 17U;

/// sums[t] += w . x_t over n columns, for the `Width` tokens of one packed group. A function of its
/// own (not inlined) because the accumulators then stay in registers: 1.5 times as fast with
/// gcc 12.
template <int Width>
[[gnu::noinline]] inline void add_products(const Element* w, const Element* x, Index n,
                                           Element* sums) {
  for (Index begin = 0; begin < n; begin += max_products) {
    const Index end = std::min(n, begin + max_products);
    std::array<Wide, Width> acc;
    for (int t = 0; t < Width; ++t) acc[static_cast<std::size_t>(t)] = sums[t];
    for (Index c = begin; c < end; ++c) {
      const Wide weight = w[c];
#pragma GCC unroll 4
      for (int t = 0; t < Width; ++t) acc[static_cast<std::size_t>(t)] += weight * x[c * Width + t];
    }
    for (int t = 0; t < Width; ++t) sums[t] = fold(acc[static_cast<std::size_t>(t)]);
  }
}

inline void add_products(Index width, const Element* w, const Element* x, Index n, Element* sums) {
  switch (width) {
    case 1:
      return add_products<1>(w, x, n, sums);
    case 2:
      return add_products<2>(w, x, n, sums);
    case 3:
      return add_products<3>(w, x, n, sums);
    default:
      return add_products<4>(w, x, n, sums);
  }
}

/// x [tokens, cols] as the kernels read it: groups of up to four tokens, each group column by
/// column, so that one pointer walks over all its tokens; or, for `ifma`, the limbs of one token
/// after the other.
class PackedTokens {
 public:
  /// @pre has_ifma() when `ifma` is set
  PackedTokens(std::span<const Element> x, Index tokens, Index cols, bool ifma = has_ifma())
      : tokens_(tokens),
        cols_(cols),
        ifma_(ifma),
        packed_(ifma ? static_cast<std::size_t>(tokens * limbs_size(cols)) : x.size()) {
    if (ifma)
      for (Index t = 0; t < tokens; ++t)
        split_limbs(x.data() + t * cols, cols, packed_.data() + t * limbs_size(cols));
    else
      for (Index first = 0; first < tokens; first += group_tokens) pack_group(x.data(), first);
  }
  [[nodiscard]] Index tokens() const { return tokens_; }
  [[nodiscard]] Index cols() const { return cols_; }
  [[nodiscard]] Index group_width(Index first) const {
    return std::min(group_tokens, tokens_ - first);
  }
  /// sums[t] += w . x_(first + t) over columns [col, col + n), for the group that begins with token
  /// `first`.
  /// @pre col is a multiple of block_cols, n <= block_cols
  void add_products_to(Element* sums, Index first, const Element* w, Index col, Index n) const {
    const Index width = group_width(first);
#ifdef TPSIM_HAS_ISAS
    if (ifma_) {
      const Index stride = limbs_size(cols_);
      const Element* x = packed_.data() + first * stride + 2 * col;
      if (width == 1) return ifma::add_products<1>(w, x, stride, n, sums);
      if (width == 2) return ifma::add_products<2>(w, x, stride, n, sums);
      if (width == 3) return ifma::add_products<3>(w, x, stride, n, sums);
      return ifma::add_products<4>(w, x, stride, n, sums);
    }
#endif
    add_products(width, w, packed_.data() + first * cols_ + col * width, n, sums);
  }

 private:
  void pack_group(const Element* x, Index first) {
    Element* out = packed_.data() + first * cols_;
    for (Index c = 0; c < cols_; ++c)
      for (Index t = 0; t < group_width(first); ++t) *out++ = x[(first + t) * cols_ + c];
  }

  Index tokens_, cols_;
  bool ifma_;
  std::vector<Element> packed_;
};
#ifdef TPSIM_HAS_ISAS
static_assert(block_cols <= ifma::most_columns && block_cols % 8 == 0);
#endif

/// y [tokens, rows] = x w^T for w [rows, x.cols()].
/// @param block  block(row, col, n, buffer) gives n elements of w from (row, col) on: in `buffer`
///               (block_cols long) or where they are stored. Called from several threads.
template <class Block>
[[nodiscard]] std::vector<Element> linear(const PackedTokens& x, Index rows, const Block& block) {
  const Index tokens = x.tokens(), cols = x.cols();
  std::vector<Element> y(static_cast<std::size_t>(tokens * rows));
  const Index tiles = (rows + block_rows - 1) / block_rows;
  const auto tile = [&](Index first_row) {
    const Index last_row = std::min(rows, first_row + block_rows);
    std::array<Element, block_cols> buffer;
    std::array<Element, group_tokens> sums;
    for (Index col = 0; col < cols; col += block_cols) {
      const Index n = std::min(block_cols, cols - col);
      for (Index row = first_row; row < last_row; ++row) {
        const Element* w = block(row, col, n, buffer.data());
        for (Index first = 0; first < tokens; first += group_tokens) {
          const Index width = x.group_width(first);
          Element* out = y.data() + first * rows + row;
          for (Index t = 0; t < width; ++t) sums[static_cast<std::size_t>(t)] = out[t * rows];
          x.add_products_to(sums.data(), first, w, col, n);
          for (Index t = 0; t < width; ++t) out[t * rows] = sums[static_cast<std::size_t>(t)];
        }
      }
    }
  };
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (tokens * rows * cols >= parallel_macs)
#endif
  for (Index i = 0; i < tiles; ++i) tile(i * block_rows);
  return y;
}

}  // namespace tpsim::gf61
