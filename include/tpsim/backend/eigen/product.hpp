// SPDX-License-Identifier: MIT
// x w^T in a fixed order: an output element's bits depend on its row of x and its row of w alone.
//
// Each element is a sum over blocks of 256 columns, added in order; inside a block the products
// are added one after the other, starting from zero. Vector lanes hold different tokens, so that
// neither the number of tokens, the other rows of w, the tiles nor the threads can change a bit:
// a column-parallel shard has the same bits as the full product. No product of Eigen is used.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <tpsim/backend/eigen/tensor.hpp>

namespace tpsim::eigen {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kVectorRegisters = 16;
#else
inline constexpr int kVectorBytes = 16, kVectorRegisters = 16;
#endif

template <class Real>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Lanes<double> {
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
};
template <class Real>
inline constexpr Index kLanes = kVectorBytes / static_cast<Index>(sizeof(Real));

inline constexpr Index kBlock = 256;   // columns that are summed before a block sum is added
inline constexpr Index kChunk = 1024;  // columns for which one tile keeps x in cache
inline constexpr Index kTile = 64;     // output columns of one piece of work
inline constexpr Index kGroup = 8;     // output columns of one pass over x
// Vectors of tokens that one pass keeps in registers, next to 4 (8 for at most 2) rows of w.
inline constexpr int kMostVectors = kVectorRegisters == 32 ? 4 : 2;

/// Tokens side by side in the lanes: element (k, t) of a panel at data[k * width + t].
template <class Real>
class PackedTokens {
 public:
  struct Panel {
    Index first;    ///< first token
    Index vectors;  ///< 1, 2 or 4 vectors wide
    const Real* data;
  };
  /// element(t, k) gives token t, column k; lanes past the last token are zero.
  template <class F>
  PackedTokens(Index tokens, Index columns, const F& element) {
    std::vector<std::pair<Index, Index>> cuts;
    while (padded_ < tokens) {
      const Index need = (tokens - padded_ + kLanes<Real> - 1) / kLanes<Real>;
      const Index vectors = need >= 4 && kMostVectors == 4 ? 4 : need >= 2 ? 2 : 1;
      cuts.emplace_back(padded_, vectors);
      padded_ += vectors * kLanes<Real>;
    }
    buffer_.setZero(padded_ * columns);
    for (const auto& [first, vectors] : cuts) {
      Real* data = buffer_.data() + first * columns;
      const Index width = vectors * kLanes<Real>, used = std::min(width, tokens - first);
      parallel_for((columns + kBlock - 1) / kBlock, used * columns > 1 << 14, [&](Index block) {
        const Index end = std::min(columns, (block + 1) * kBlock);
        for (Index t = 0; t < used; ++t)
          for (Index k = block * kBlock; k < end; ++k) data[k * width + t] = element(first + t, k);
      });
      panels_.push_back({first, vectors, data});
    }
  }
  [[nodiscard]] const std::vector<Panel>& panels() const { return panels_; }
  [[nodiscard]] Index padded() const { return padded_; }

 private:
  Index padded_ = 0;
  Eigen::Array<Real, Eigen::Dynamic, 1> buffer_;
  std::vector<Panel> panels_;
};

/// out[r * stride + t] = sum over k < n of w[r][k] * x[k * width + t], or of |w[r][k]|.
template <bool Abs, int Rows, int Vectors, class Real>
void block_product(const Real* const* w, const Real* x, Index n, Real* out, Index stride) {
  using Vector = typename Lanes<Real>::Vector;
  constexpr Index lanes = kLanes<Real>;
  Vector sum[Rows][Vectors] = {};
  for (Index k = 0; k < n; ++k) {
    Vector token[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      std::memcpy(&token[v], x + (k * Vectors + v) * lanes, sizeof(Vector));
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Real weight = Abs ? std::abs(w[r][k]) : w[r][k];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += weight * token[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      std::memcpy(out + r * stride + v * lanes, &sum[r][v], sizeof(Vector));
}

/// As block_product for kGroup rows and a panel of any width.
template <bool Abs, class Real>
void group_product(const Real* const* w, const Real* x, Index vectors, Index n, Real* out) {
  const Index stride = vectors * kLanes<Real>;
  if (vectors == 1) return block_product<Abs, 8, 1>(w, x, n, out, stride);
  if constexpr (kMostVectors == 4) {
    if (vectors == 2) return block_product<Abs, 8, 2>(w, x, n, out, stride);
    block_product<Abs, 4, 4>(w, x, n, out, stride);
    block_product<Abs, 4, 4>(w + 4, x, n, out + 4 * stride, stride);
  } else {
    block_product<Abs, 4, 2>(w, x, n, out, stride);
    block_product<Abs, 4, 2>(w + 4, x, n, out + 4 * stride, stride);
  }
}

/// Columns [k, k + n) of row `row` of w; `scratch` has room for n numbers.
template <class Real>
using WeightRows = std::function<const Real*(Index row, Index k, Index n, Real* scratch)>;

/// y = x w^T before any rounding to the activations' type, y [tokens, out]. When `spread` is given
/// it has the layout of x and `bound` (sized as y) becomes
///   unit * (sum of |block sums so far| after each added block) + factor * (spread |w|^T),
/// the second product computed in Real.
template <class Real>
void tiled_product(const PackedTokens<Real>& x, const PackedTokens<Real>* spread, Index columns,
                   const WeightRows<Real>& rows, double unit, double factor, Matrix<Real>& y,
                   Matrix<double>* bound) {
  const Index out = y.cols(), tokens = y.rows(), padded = x.padded();
  const bool worth = tokens * out * columns > 1 << 16;
  parallel_for((out + kTile - 1) / kTile, worth, [&](Index tile) {
    const Index first = tile * kTile, count = std::min(kTile, out - first);
    Matrix<Real> sum = Matrix<Real>::Zero(kTile, padded);
    Matrix<double> error = Matrix<double>::Zero(spread != nullptr ? kTile : 0, padded);
    Matrix<Real> wide(kGroup, kBlock);
    Matrix<Real> block(kGroup, kMostVectors * kLanes<Real>);
    for (Index chunk = 0; chunk < columns; chunk += kChunk)
      for (Index group = 0; group < count; group += kGroup)
        for (Index k = chunk; k < std::min(columns, chunk + kChunk); k += kBlock) {
          const Index n = std::min(kBlock, columns - k);
          const Real* w[kGroup];  // rows past the end repeat the last one and are not used
          for (Index r = 0; r < kGroup; ++r)
            w[r] = group + r < count ? rows(first + group + r, k, n, wide.data() + r * kBlock)
                                     : w[r - 1];
          for (std::size_t p = 0; p < x.panels().size(); ++p) {
            const auto& panel = x.panels()[p];
            const Index width = panel.vectors * kLanes<Real>;
            group_product<false>(w, panel.data + k * width, panel.vectors, n, block.data());
            for (Index r = 0; r < kGroup; ++r) {
              Real* to = sum.data() + (group + r) * padded + panel.first;
              const Real* from = block.data() + r * width;
              for (Index t = 0; t < width; ++t) to[t] += from[t];
            }
            if (spread == nullptr) continue;
            group_product<true>(w, spread->panels()[p].data + k * width, panel.vectors, n,
                                block.data());
            const double added = k == 0 ? 0.0 : unit;  // 0 + b is exact
            for (Index r = 0; r < kGroup; ++r) {
              double* to = error.data() + (group + r) * padded + panel.first;
              const Real* total = sum.data() + (group + r) * padded + panel.first;
              const Real* from = block.data() + r * width;
              for (Index t = 0; t < width; ++t)
                to[t] += factor * static_cast<double>(from[t]) +
                         added * std::abs(static_cast<double>(total[t]));
            }
          }
        }
    for (Index t = 0; t < tokens; ++t)
      for (Index c = 0; c < count; ++c) {
        y(t, first + c) = sum(c, t);
        if (spread != nullptr) (*bound)(t, first + c) = error(c, t);
      }
  });
}

}  // namespace tpsim::eigen
