// SPDX-License-Identifier: MIT
// Does what the ranks hold depend on the order in which the tensors arrive? A second load, last
// tensor first, tells.
#pragma once

#include <tpsim/backend/symbolic/symbolic_backend.hpp>
#include <tpsim/verify/held.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim {
namespace detail {

[[nodiscard]] inline bool same_pieces(const std::vector<Piece>& a, const std::vector<Piece>& b) {
  const auto same = [](const Piece& x, const Piece& y) {
    return x.row == y.row && x.col == y.col && x.rows == y.rows && x.cols == y.cols &&
           x.src_row == y.src_row && x.src_col == y.src_col && x.src_stride == y.src_stride &&
           same_tensor(x.tensor, y.tensor);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

}  // namespace detail

/// @param held  [rank][param] after a load in the checkpoint's order
/// @return one finding of `order` for each parameter whose content depends on the order
[[nodiscard]] inline std::vector<Finding> arrival_findings(const Subject& subject,
                                                           const std::vector<HeldRank>& held) {
  std::vector<Finding> out;
  if (subject.tensors.size() < 2) return out;
  SymbolicContext context;
  const std::vector<DiskTensor> reversed(subject.tensors.rbegin(), subject.tensors.rend());
  std::vector<HeldRank> other(held.size());  // what the first load refused was told there
  (void)run_ranks<SymbolicBackend>(
      subject, reversed, [&](int rank) { return std::make_unique<SymbolicBackend>(context, rank); },
      nullptr,
      [&](std::size_t r, SymbolicBackend&, ModuleOn<SymbolicBackend>& module) {
        for (const auto& [name, param] : module.params())
          other[r].push_back({name, param->shape(), param->pieces(), {}, {}});
      });
  std::vector<bool> told(subject.params.size());
  for (std::size_t r = 0; r < held.size(); ++r)
    for (const HeldParam& param : other[r])
      for (std::size_t p = 0; p < subject.params.size(); ++p) {
        if (told[p] || param.name != subject.params[p].name ||
            detail::same_pieces(held[r][p].pieces, param.pieces))
          continue;
        told[p] = true;
        const bool twice = !held[r][p].overwritten.empty();
        out.push_back({"order", static_cast<int>(r), param.name,
                       "rank " + std::to_string(r) + " " + param.name + ": holds " +
                           describe(held_rows(held[r][p], 0, held[r][p].shape.rows()), "rows", 2) +
                           ", but " + describe(held_rows(param, 0, param.shape.rows()), "rows", 2) +
                           " when the tensors arrive in reverse",
                       twice ? "two tensors are written to the same rows: the last one stays"
                             : "the loader places a tensor by what came before it",
                       twice ? "give each tensor its own place"
                             : "take the place from the tensor's name or shard id"});
      }
  return out;
}

}  // namespace tpsim
