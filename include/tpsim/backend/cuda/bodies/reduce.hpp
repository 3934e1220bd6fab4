// SPDX-License-Identifier: MIT
// Kernel bodies of sums over ranks, in the orders and roundings of backend/eigen/reduce_order.hpp.
#pragma once

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// The sum of `count` tensors of out's type and size without gaps. rank: part after part, every hop
/// rounded to the type; ring: element i starts at the part behind its chunk; once: in f32, rounded
/// at the end.
struct SumOverRanks {
  const void* const* parts;
  Size count;
  SumOrder order;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    const Size chunk = (out.size() + count - 1) / count;
    for (Size i = lane.index; i < out.size(); i += lane.count) {
      const Size first = order == SumOrder::ring ? i / chunk + 1 : 0;
      float sum = load_word(out.type, parts[first % count], i);
      for (Size hop = 1; hop < count; ++hop) {
        sum += load_word(out.type, parts[(first + hop) % count], i);
        if (order != SumOrder::once) sum = rounded_to(out.type, sum);
      }
      store(out, i, sum);
    }
  }
};

/// The largest; a NaN (poison) wins, where fmaxf would hide it.
struct MaxOverRanks {
  const void* const* parts;
  Size count;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count) {
      float most = load_word(out.type, parts[0], i);
      for (Size k = 1; k < count; ++k) {
        const float next = load_word(out.type, parts[k], i);
        if (next > most || next != next) most = next;
      }
      store(out, i, most);
    }
  }
};

}  // namespace tpsim::cuda::body
