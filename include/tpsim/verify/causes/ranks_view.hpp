// SPDX-License-Identifier: MIT
// One parameter on all ranks, as the signatures of causes look at it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/verify/held.hpp>

namespace tpsim {

/// Why something is not as declared, and what to do about it; both "" where no signature fits.
struct Cause {
  std::string cause, repair;
};

namespace detail {

/// Parameter `p` on all ranks, along one dimension: what was declared, and what is there.
struct RanksView {
  const Subject& subject;
  const std::vector<HeldRank>& held;  ///< [rank][param]
  std::size_t p;
  int dim = subject.params[p].tp_dim.value_or(0);  ///< 0 rows, 1 columns

  [[nodiscard]] const DeclaredParam& param() const { return subject.params[p]; }
  [[nodiscard]] std::size_t ranks() const { return held.size(); }
  [[nodiscard]] const HeldParam& at(std::size_t rank) const { return held[rank][p]; }
  [[nodiscard]] bool by_column() const { return dim == 1; }
  [[nodiscard]] std::string unit() const { return by_column() ? "columns" : "rows"; }

  /// Rows (columns) of part k that `rank` must hold.
  [[nodiscard]] const Runs& wanted(std::size_t k, std::size_t rank) const {
    const DeclaredPart& part = param().parts[k];
    return by_column() ? part.cols[rank] : part.rows[rank];
  }
  /// The rows (columns) of the whole part.
  [[nodiscard]] Index extent(std::size_t k) const {
    return param().parts[k].tensor->shape.dim(by_column() ? 1 : 0);
  }
  /// What `rank` holds where part k belongs; empty when its parameter is too small for that.
  [[nodiscard]] std::vector<HeldRun> found(std::size_t k, std::size_t rank) const {
    const auto [offset, size] = part_rows(param(), k, rank);
    if (offset + size > at(rank).shape.rows()) return {};
    return by_column() ? held_columns(at(rank), offset)
                       : held_rows(at(rank), offset, offset + size);
  }
  /// The entries of part k's own tensor there, when there is nothing else.
  [[nodiscard]] std::optional<Runs> own(std::size_t k, std::size_t rank) const {
    std::vector<HeldRun> runs = found(k, rank);
    if (runs.size() != 1 || runs[0].tensor != param().parts[k].tensor) return std::nullopt;
    return std::move(runs[0].source);
  }
  [[nodiscard]] bool is_right(std::size_t k, std::size_t rank) const {
    if (wanted(k, rank).empty()) return found(k, rank).empty();
    const auto entries = own(k, rank);
    return entries && *entries == wanted(k, rank);
  }
  [[nodiscard]] bool is_right_everywhere(std::size_t k) const {
    for (std::size_t r = 0; r < ranks(); ++r)
      if (!is_right(k, r)) return false;
    return true;
  }
  /// Rows and columns that `rank` must have.
  [[nodiscard]] Shape wanted_shape(std::size_t rank) const {
    Index rows = 0;
    for (const DeclaredPart& part : param().parts) rows += part.rows[rank].size();
    rows += param().padding_of(rank);
    const Shape shape = param().full_shape.with(0, rows);
    return shape.rank() == 1 ? shape : shape.with(1, param().parts[0].cols[rank].size());
  }
};

}  // namespace detail
}  // namespace tpsim
