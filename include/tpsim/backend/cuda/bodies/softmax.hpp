// SPDX-License-Identifier: MIT
// Kernel body of attention's softmax, between the product that makes scores and the one that sums
// values.
#pragma once

#include <math.h>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// products [heads tokens, keys], head after head: q . k. -> weights of one shape, rounded to their
/// type, 0 for keys that the token does not see. Query row t stands at first_position + t and sees
/// the keys of positions [max(0, p - window + 1), p].
/// score = product scale + slopes[head] (key - p); the sink has a score and no value.
/// In f64, with CUDA's exp (1 ulp); rounded once to f32 and once to the weights' type.
struct Softmax {
  ConstMatrix products;
  Size tokens, first_position, window;  ///< window 0: all positions before
  double scale;
  const double* slopes;  ///< [heads]; null: 0
  ConstMatrix sinks;     ///< [1, heads]; no data: none
  Matrix weights;
  [[nodiscard]] TPSIM_HOST_DEVICE Size rows() const { return weights.rows; }
  [[nodiscard]] TPSIM_HOST_DEVICE Size columns() const { return weights.cols; }

  template <class All>
  TPSIM_HOST_DEVICE void operator()(Size row, Lane lane, All& all) const {
    const Size head = row / tokens, position = first_position + row % tokens;
    const Size first = window > 0 && position >= window ? position - window + 1 : 0;
    const double slope = slopes == nullptr ? 0.0 : slopes[head];
    const double nothing = -HUGE_VAL;
    const double sink = sinks.data == nullptr ? nothing : static_cast<double>(load(sinks, 0, head));
    double top = sink;
    for (Size j = first + lane.index; j <= position; j += lane.count)
      top = Max{}(top, score(row, j, position, slope));
    top = all.max(top);
    double total = 0;
    for (Size j = first + lane.index; j <= position; j += lane.count)
      total += exp(score(row, j, position, slope) - top);
    total = all.sum(total) + exp(sink - top);
    for (Size j = lane.index; j < weights.cols; j += lane.count) {
      const bool seen = j >= first && j <= position;
      store(weights, row, j,
            seen ? static_cast<float>(exp(score(row, j, position, slope) - top) / total) : 0.0F);
    }
  }

 private:
  [[nodiscard]] TPSIM_HOST_DEVICE double score(Size row, Size j, Size position,
                                               double slope) const {
    return static_cast<double>(load(products, row, j)) * scale +
           slope * static_cast<double>(j - position);
  }
};

}  // namespace tpsim::cuda::body
