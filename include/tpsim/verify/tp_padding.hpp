// SPDX-License-Identifier: MIT
// The smallest padding of a model's weights that makes an illegal tp legal.
#pragma once

#include <optional>

#include <tpsim/verify/tp_cost.hpp>

namespace tpsim {

/// A padded model: zero rows and columns are added, so that it computes the same.
struct TpPadding {
  RuleArea area = RuleArea::attention;
  ModelShape padded;
  Index added_bytes = 0;  ///< of the whole checkpoint
  std::string text;       ///< "pad 28 query heads to 32, ..."
};

/// The padding with the fewest bytes that leaves no broken rule of `area` (ep: as in
/// broken_rules); none where none is
/// needed or none can help (too many ranks, weights that the engine does not read, a hidden size
/// that does not fit its quantisation groups).
///
/// Query heads are padded inside their kv groups, from group to group' heads each: zero heads at
/// the tail would give later heads another kv head. Padded kv heads are whole groups of zeros.
/// Widths and vocabulary are padded to the next multiple that is legal.
[[nodiscard]] std::optional<TpPadding> smallest_padding(const ModelShape& m, Engine engine,
                                                        Index tp, RuleArea area, Index ep = 0);

}  // namespace tpsim

#include <tpsim/verify/detail/tp_padding.hpp>
