// SPDX-License-Identifier: MIT
// Declared cuts: which rows of a logical tensor each rank holds, `kv*g even`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/layout/axes.hpp>
#include <tpsim/layout/runs.hpp>

namespace tpsim {

/// How n entries go to tp ranks. All but `whole` and `replicated` put every entry on one rank, in
/// rank order.
enum class CutRule : std::uint8_t {
  whole,         ///< every rank holds all
  even,          ///< n / tp each; must divide
  replicated,    ///< tp <= n: as even. tp > n: rank r holds entry r / (tp / n); n must divide tp
  padded,        ///< n grows to a multiple of `size` (times tp); then even; padding comes last
  block,         ///< ceil(ceil(n / size) / tp) blocks of `size` each; last ranks short or empty
  chunk,         ///< ceil(n / tp) each; last ranks short or empty (torch.chunk)
  tensor_split,  ///< the first n % tp ranks hold one more (torch.tensor_split, numpy.array_split)
};

/// What padding rows hold: zeros, or copies of the tensor's last row.
/// Source: vLLM `vocab_parallel_embedding.py` (zero), Megatron `saver_base.py` (last).
enum class Fill : std::uint8_t { zero, last };

/// A cut as a plan declares it:
///
///     cut  := 'whole' | axes rule          axes := NAME ('*' NAME)*
///     rule := 'even' | 'replicated' | 'chunk' | 'tensor_split' | 'block(' M ')'
///           | 'padded(' M ['*tp'] ')' ['zero' | 'last']
///
/// The axes are the outermost of the label's canonical axes; an entry is one index over them and
/// stands for the rows of the remaining axes. vLLM pads a vocabulary with `V padded(64) zero`,
/// Megatron with `V padded(128*tp) last`.
struct Cut {
  std::vector<std::string> axes;  ///< outermost first; empty for `whole`
  CutRule rule = CutRule::whole;
  Index size = 1;         ///< block: entries in a block; padded: the multiple
  bool times_tp = false;  ///< padded: the multiple is size * tp
  Fill fill = Fill::zero;

  /// @throws LayoutError with the text, a caret under the column and what was expected there
  [[nodiscard]] static Cut parse(std::string_view text);
  /// @post parse(str()) == *this
  [[nodiscard]] std::string str() const;
  friend bool operator==(const Cut&, const Cut&) = default;
};

/// What one rank holds: canonical rows in local order, then padding rows.
struct CutResult {
  Runs rows;
  Index padding = 0;
  Fill fill = Fill::zero;
  [[nodiscard]] Index size() const { return rows.size() + padding; }
};

/// A rank and the local row at which it holds something.
struct Place {
  Index rank = 0, row = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

/// Every rule that the cut breaks on these axes and ranks; empty when it is legal. `names`: the
/// cut's axes are not the outermost; `divide`: the entries do not go round; `cover`: extents, sizes
/// or ranks out of range.
[[nodiscard]] std::vector<Violation> cut_violations(const Cut& cut,
                                                    const std::vector<AxisExtent>& axes,
                                                    Index tp_size);

/// The tp sizes from 1 to `largest` for which the cut is legal.
[[nodiscard]] std::vector<Index> legal_tp(const Cut& cut, const std::vector<AxisExtent>& axes,
                                          Index largest);

/// The canonical rows that rank `tp_rank` holds, and the padding after them.
/// @throws LayoutError with cut_violations and the legal tp sizes
/// @post over the ranks, every canonical row appears multiplicity() times (cover)
[[nodiscard]] CutResult cut_rows(const Cut& cut, const std::vector<AxisExtent>& axes, Index tp_size,
                                 Index tp_rank);

/// How many ranks hold each row: tp for `whole`, tp / n for `replicated` with tp > n, else 1.
/// @throws LayoutError as cut_rows
[[nodiscard]] Index multiplicity(const Cut& cut, const std::vector<AxisExtent>& axes,
                                 Index tp_size);

/// Where canonical row `row` is held, in rank order: the inverse of cut_rows.
/// @throws LayoutError as cut_rows, and (cover) for a row outside the tensor
/// @post cut_rows(..., p.rank).rows[p.row] == row for every place p
[[nodiscard]] std::vector<Place> places(const Cut& cut, const std::vector<AxisExtent>& axes,
                                        Index tp_size, Index row);

}  // namespace tpsim

#include <tpsim/layout/detail/cut_rules.hpp>
#include <tpsim/layout/detail/cut_text.hpp>
