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
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <tpsim/backend/eigen/kernels.hpp>
#include <tpsim/backend/eigen/tensor.hpp>

namespace tpsim::eigen {

inline constexpr Index kChunk = 1024;  // columns for which a tile keeps x of 64 tokens in cache
inline constexpr Index kTile = 64;     // output columns of one piece of work

/// Tokens side by side in the lanes: element (k, t) of a panel at data[k * width + t].
template <class Real>
class PackedTokens {
 public:
  struct Panel {
    Index first;  ///< first token
    Index width;  ///< 1, or 1, 2 or 4 vectors
    const Real* data;
  };
  /// element(t, k) gives token t, column k; lanes past the last token are zero.
  template <class F>
  PackedTokens(Index tokens, Index columns, const F& element, Isa isa = best_isa())
      : kernels_(&kernels_for<Real>(isa)) {
    const Index lanes = kernels_->lanes;
    std::vector<std::pair<Index, Index>> cuts;
    while (padded_ < tokens) {
      Index width = 1;
      if (tokens - padded_ > 1)
        for (width = lanes; width < tokens - padded_ && width < lanes * kernels_->most_vectors;)
          width *= 2;
      if (width > lanes && width - lanes >= tokens - padded_) width /= 2;  // no idle vector
      cuts.emplace_back(padded_, width);
      padded_ += width;
    }
    buffer_.setZero(padded_ * columns);
    for (const auto& cut : cuts) {
      const Index first = cut.first, width = cut.second;
      Real* data = buffer_.data() + first * columns;
      const Index used = std::min(width, tokens - first);
      parallel_for((columns + kBlock - 1) / kBlock, used * columns > 1 << 16, [&](Index block) {
        constexpr Index together = 8;  // rows of x that are read side by side
        const Index end = std::min(columns, (block + 1) * kBlock);
        for (Index begin = 0; begin < used; begin += together)
          for (Index k = block * kBlock; k < end; ++k)
            for (Index t = begin; t < std::min(used, begin + together); ++t)
              data[k * width + t] = element(first + t, k);
      });
      panels_.push_back({first, width, data});
    }
  }
  [[nodiscard]] const std::vector<Panel>& panels() const { return panels_; }
  [[nodiscard]] Index padded() const { return padded_; }
  [[nodiscard]] const Kernels<Real>& kernels() const { return *kernels_; }

 private:
  const Kernels<Real>* kernels_;
  Index padded_ = 0;
  Eigen::Array<Real, Eigen::Dynamic, 1> buffer_;
  std::vector<Panel> panels_;
};

/// Columns [k, k + n) of row `row` of w; `scratch` has room for n numbers.
template <class Real>
using WeightRows = std::function<const Real*(Index row, Index k, Index n, Real* scratch)>;

/// How |x| |w|^T is found, block by block: itself, a second product; or above it, the product of
/// the Euclidean norms of both (Cauchy-Schwarz): a third more for uniform data, at 1 / tokens of
/// the time.
enum class Magnitudes : std::uint8_t { products, norms };

/// y = x w^T before any rounding to the activations' type, y [tokens, out]. When `spread` is given,
/// `bound` (sized as y) becomes
///   unit * (sum of |block sums so far| after each added block) + factor * (spread |w|^T),
/// the second product computed in Real. `spread` has the layout of x, or with Magnitudes::norms one
/// column a block, the norm of its columns there.
template <class Real>
void tiled_product(const PackedTokens<Real>& x, const PackedTokens<Real>* spread, Index columns,
                   const WeightRows<Real>& rows, double unit, double factor, Matrix<Real>& y,
                   Matrix<double>* bound, Magnitudes magnitudes = Magnitudes::products) {
  const Index out = y.cols(), tokens = y.rows(), padded = x.padded();
  const Kernels<Real>& kernels = x.kernels();
  const Index chunk_columns = kChunk * std::max<Index>(1, 64 / std::max<Index>(padded, 1));
  const bool worth = tokens * out * columns > 1 << 16;
  parallel_for((out + kTile - 1) / kTile, worth, [&](Index tile) {
    const Index first = tile * kTile, count = std::min(kTile, out - first);
    Matrix<Real> sum = Matrix<Real>::Zero(kTile, padded);
    Matrix<double> error = Matrix<double>::Zero(spread != nullptr ? kTile : 0, padded);
    Matrix<Real> wide(kGroup, kBlock), block(kGroup, kernels.most_vectors * kernels.lanes);
    for (Index chunk = 0; chunk < columns; chunk += chunk_columns)
      for (Index group = 0; group < count; group += kGroup)
        for (Index k = chunk; k < std::min(columns, chunk + chunk_columns); k += kBlock) {
          const Index n = std::min(kBlock, columns - k);
          const Real* w[kGroup];  // rows past the end repeat the last one and are not used
          for (Index r = 0; r < kGroup; ++r)
            w[r] = group + r < count ? rows(first + group + r, k, n, wide.data() + r * kBlock)
                                     : w[r - 1];
          const Real* sizes[kGroup];  // what meets `spread`: w, or its norm in this block
          Real norms[kGroup];
          Index sizes_n = n, sizes_k = k;
          std::copy_n(w, kGroup, sizes);
          if (spread != nullptr && magnitudes == Magnitudes::norms) {
            kernels.squares(w, n, norms);
            for (Index r = 0; r < kGroup; ++r) {
              norms[r] = std::sqrt(norms[r] + std::numeric_limits<Real>::min());  // of underflow
              sizes[r] = norms + r;
            }
            sizes_n = 1, sizes_k = k / kBlock;
          }
          for (std::size_t p = 0; p < x.panels().size(); ++p) {
            const auto& [begin, width, data] = x.panels()[p];
            const bool single = width == 1;
            Real* total = sum.data() + group * padded + begin;
            (single ? single_token<false, Real> : kernels.add_block)(w, data + k * width, width, n,
                                                                     total, padded);
            if (spread == nullptr) continue;
            (single ? single_token<true, Real> : kernels.magnitudes)(
                sizes, spread->panels()[p].data + sizes_k * width, width, sizes_n, block.data(),
                width);
            for (Index r = 0; r < kGroup; ++r)
              kernels.add_error(block.data() + r * width, factor, total + r * padded,
                                k == 0 ? 0.0 : unit,  // 0 + b is exact
                                width, error.data() + (group + r) * padded + begin);
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
