// SPDX-License-Identifier: MIT
// Kernel bodies that choose the greatest of several columns. Values and ids are f32.
#pragma once

#include <math.h>

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// out[t] := (value, id) of the greatest column of x[t], where column c has the id first_id + c; of
/// no columns (-infinity, none), which every other pair beats.
struct Largest {
  ConstMatrix x;
  Size first_id;
  float none;
  Matrix out;
  [[nodiscard]] TPSIM_HOST_DEVICE Size rows() const { return x.rows; }
  [[nodiscard]] TPSIM_HOST_DEVICE Size columns() const { return x.cols; }

  template <class All>
  TPSIM_HOST_DEVICE void operator()(Size row, Lane lane, All& all) const {
    Choice best{-HUGE_VALF, none};
    for (Size c = lane.index; c < x.cols; c += lane.count)
      best = Best{}(best, {load(x, row, c), static_cast<float>(first_id + c)});
    best = all.best(best);
    if (lane.index != 0) return;
    store(out, row, 0, best.value);
    store(out, row, 1, best.id);
  }
};

/// pairs [tokens, 2 k] -> out [tokens, 1]: the id of the greatest value. A lane takes whole tokens.
struct BestOf {
  ConstMatrix pairs;
  float none;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size t = lane.index; t < out.rows; t += lane.count) {
      Choice best{-HUGE_VALF, none};
      for (Size k = 0; k < pairs.cols; k += 2)
        best = Best{}(best, {load(pairs, t, k), load(pairs, t, k + 1)});
      store(out, t, 0, best.id);
    }
  }
};

}  // namespace tpsim::cuda::body
