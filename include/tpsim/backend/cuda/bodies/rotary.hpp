// SPDX-License-Identifier: MIT
// Kernel body of rotary positions: every head of a token turned by the token's angles.
#pragma once

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// Heads of `head_dim` columns side by side. Pair j of token t turns by turns[(t pairs + j) 2],
/// which is cos times the magnitude, and the next number, sin times it: the host makes both, so
/// that angles and their functions are the CPU's. The columns behind the pairs stay, rounded to
/// out's type.
struct Rope {
  ConstMatrix x;
  const double* turns;
  Size head_dim, pairs;
  bool interleaved;  ///< a pair is 2 j and 2 j + 1; else j and j + pairs
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count) {
      const Size t = i / out.cols, col = i % out.cols, c = col % head_dim;
      if (c >= 2 * pairs) {
        store(out, i, load(x, i));
        continue;
      }
      const Size j = interleaved ? c / 2 : c % pairs;
      const bool second = interleaved ? c % 2 == 1 : c >= pairs;
      const Size step = interleaved ? 1 : pairs, other = second ? col - step : col + step;
      const double cos = turns[(t * pairs + j) * 2], sin = turns[(t * pairs + j) * 2 + 1];
      const double own = static_cast<double>(load(x, t, col));
      const double its = static_cast<double>(load(x, t, other));
      const double y = second ? own * cos + its * sin : own * cos - its * sin;
      store(out, i, static_cast<float>(y));
    }
  }
};

}  // namespace tpsim::cuda::body
