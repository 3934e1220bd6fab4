// SPDX-License-Identifier: MIT
// The greatest of several columns in the exact reading. A field has no order: any fixed one does,
// since a choice among parts of the columns and then among the chosen is one among all.
#pragma once

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/field/tensor.hpp>

namespace tpsim::detail {

/// A value and its id, in the order of the residues (v - 1) mod p: 0 is the greatest, so that a
/// column of padding, which is 0, always shows.
struct FieldPair {
  gf61::Element value = 1;  ///< the least
  gf61::Element id = no_choice;

  [[nodiscard]] bool beats(const FieldPair& other) const {
    const gf61::Element mine = gf61::sub(value, 1), its = gf61::sub(other.value, 1);
    return mine > its || (mine == its && id < other.id);
  }
};

/// x [tokens, n] -> [tokens, 2]. @throws LayoutError (names)
[[nodiscard]] inline FieldTensor largest(const FieldTensor& x, Index first_id) {
  require_ids_exact(first_id, x.cols);
  FieldTensor out(x.tokens, 2);
  for (Index t = 0; t < x.tokens; ++t) {
    FieldPair best;
    for (Index c = 0; c < x.cols; ++c) {
      const FieldPair one{x.at(t, c), static_cast<gf61::Element>(first_id + c)};
      if (one.beats(best)) best = one;
    }
    out.row(t)[0] = best.value, out.row(t)[1] = best.id;
  }
  return out;
}

/// pairs [tokens, 2 k] -> [tokens, 1]. @throws LayoutError (divide)
[[nodiscard]] inline FieldTensor best_of(const FieldTensor& pairs) {
  const Index n = require_pairs({pairs.tokens, pairs.cols});
  FieldTensor out(pairs.tokens, 1);
  for (Index t = 0; t < pairs.tokens; ++t) {
    FieldPair best;
    for (Index k = 0; k < n; ++k) {
      const FieldPair one{pairs.at(t, 2 * k), pairs.at(t, 2 * k + 1)};
      if (one.beats(best)) best = one;
    }
    out.row(t)[0] = best.id;
  }
  return out;
}

}  // namespace tpsim::detail
