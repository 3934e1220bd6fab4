// SPDX-License-Identifier: MIT
// A parameter's rows as the product reads them: from memory, or made on the way.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include <tpsim/backend/eigen/load.hpp>
#include <tpsim/backend/eigen/product.hpp>

namespace tpsim::eigen {

/// Rows of a parameter that is not stored. Unwritten elements are its poison.
class MadeRows {
 public:
  explicit MadeRows(const Param& w) : param_(&w), bands_(w.made) {
    for (const Piece& p : w.made) tensors_.emplace_back(w.values, *p.tensor);
    Param unwritten;
    unwritten.dtype = w.dtype, unwritten.poison = w.poison;
    poison_ = static_cast<float>(unwritten.at(0, 0));
  }
  /// Columns [k, k + n) of `row`, as they would be kept; f64 parameters have f32 numbers too.
  void fill(Index row, Index k, Index n, float* out) const {
    Index written = 0;
    for (const std::size_t i : bands_.covering(row))
      written += columns_inside(param_->made[i], k, n).second;
    if (written < n) std::fill_n(out, n, poison_);
    for (const std::size_t i : bands_.covering(row)) {
      const Piece& p = param_->made[i];
      const auto [begin, length] = columns_inside(p, k, n);
      if (is_zeros(p.tensor)) {
        std::fill_n(out + (begin - k), length, 0.0F);
        continue;
      }
      tensors_[i]
          .row(p.src_row + (row - p.row) * p.src_stride)
          .fill(p.src_col + begin - p.col, length, out + (begin - k));
    }
    round_to(param_->dtype, out, n);
  }

 private:
  const Param* param_;
  float poison_ = 0;
  PieceBands bands_;
  std::vector<WeightGenerator> tensors_;  ///< [piece]
};

/// @pre `w` outlives what is returned, which is read in blocks of at most kBlock columns
template <class Real>
[[nodiscard]] WeightRows<Real> weight_rows(const Param& w) {
  return std::visit(
      [&w](const auto& m) -> WeightRows<Real> {
        if constexpr (std::is_same_v<std::decay_t<decltype(m)>, std::monostate>) {
          return [rows = std::make_shared<const MadeRows>(w)](Index row, Index k, Index n,
                                                              Real* scratch) {
            if constexpr (std::is_same_v<Real, float>) {
              rows->fill(row, k, n, scratch);
            } else {
              std::array<float, kBlock> single;
              rows->fill(row, k, n, single.data());
              kernels_for<double>(best_isa()).widen(single.data(), n, scratch);
            }
            return static_cast<const Real*>(scratch);
          };
        } else {
          using T = typename std::decay_t<decltype(m)>::Scalar;
          const T* data = m.data();
          const Index stride = m.cols();
          return [data, stride, t = w.dtype](Index row, Index k, Index n, Real* scratch) {
            const T* from = data + row * stride + k;
            if constexpr (std::is_same_v<T, Real>) {
              return from;
            } else if constexpr (std::is_same_v<T, std::uint16_t>) {
              widen(t, from, n, scratch);
              return static_cast<const Real*>(scratch);
            } else if constexpr (std::is_same_v<Real, double>) {
              kernels_for<double>(best_isa()).widen(from, n, scratch);
              return static_cast<const Real*>(scratch);
            } else {
              for (Index i = 0; i < n; ++i) scratch[i] = static_cast<Real>(from[i]);
              return static_cast<const Real*>(scratch);
            }
          };
        }
      },
      w.storage);
}

}  // namespace tpsim::eigen
