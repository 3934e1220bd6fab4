// SPDX-License-Identifier: MIT
// Kernel bodies of sums along rows and of the norms that are made of them, all in f64.
#pragma once

#include <math.h>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// out[t, g] := the sum of group g's columns of x[t], or of their squares. A row of work is one
/// group. Error before the rounding: n units of f64 of the sum of |terms|, for n columns.
struct RowSums {
  ConstMatrix x;
  bool squares;
  Matrix out;
  [[nodiscard]] TPSIM_HOST_DEVICE Size rows() const { return out.size(); }
  [[nodiscard]] TPSIM_HOST_DEVICE Size columns() const { return x.cols / out.cols; }

  template <class All>
  TPSIM_HOST_DEVICE void operator()(Size row, Lane lane, All& all) const {
    const Size n = columns(), t = row / out.cols, g = row % out.cols;
    double sum = 0;
    for (Size c = lane.index; c < n; c += lane.count) {
      const double v = static_cast<double>(load(x, t, g * n + c));
      sum += squares ? v * v : v;
    }
    sum = all.sum(sum);
    if (lane.index == 0) store(out, t, g, static_cast<float>(sum));
  }
};

/// out := x - sums / count, each group of columns with its own sum.
struct Centered {
  ConstMatrix x, sums;
  double count;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    const Size n = x.cols / sums.cols;
    for (Size i = lane.index; i < out.size(); i += lane.count) {
      const double sum = static_cast<double>(load(sums, i / out.cols, i % out.cols / n));
      store(out, i, static_cast<float>(static_cast<double>(load(x, i)) - sum / count));
    }
  }
};

/// out := x / sqrt(square_sums / count + eps), likewise.
struct RmsNormalized {
  ConstMatrix x, square_sums;
  double count, eps;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    const Size n = x.cols / square_sums.cols;
    for (Size i = lane.index; i < out.size(); i += lane.count) {
      const double sum = static_cast<double>(load(square_sums, i / out.cols, i % out.cols / n));
      const double r = 1 / sqrt(sum / count + eps);
      store(out, i, static_cast<float>(static_cast<double>(load(x, i)) * r));
    }
  }
};

}  // namespace tpsim::cuda::body
