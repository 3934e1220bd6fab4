// SPDX-License-Identifier: MIT
// From what a rank holds to the likely cause, in words.
#pragma once

#include <tpsim/verify/held.hpp>

namespace tpsim {

struct Cause {
  std::string cause, repair;
};

namespace detail {

/// The source runs of part k on a rank, as one sequence; nothing when several tensors meet there.
[[nodiscard]] inline std::optional<HeldRun> single_source(const DeclaredParam& param,
                                                          const HeldParam& held, std::size_t k,
                                                          std::size_t rank) {
  const auto [offset, size] = part_rows(param, k, rank);
  if (offset + size > held.shape.rows()) return std::nullopt;
  std::vector<HeldRun> runs =
      param.tp_dim == 1 ? held_columns(held, offset) : held_rows(held, offset, offset + size);
  if (runs.size() != 1 || !runs[0].tensor) return std::nullopt;
  return runs[0];
}
[[nodiscard]] inline const Runs& declared(const DeclaredParam& param, const DeclaredPart& part,
                                          std::size_t rank) {
  return param.tp_dim == 1 ? part.cols[rank] : part.rows[rank];
}

}  // namespace detail

/// Why part k of param p on `rank` is not the declared one: the first signature that fits all
/// ranks. Source of the signatures: the reports of faults in real loaders.
[[nodiscard]] inline Cause likely_cause(const Subject& subject, const std::vector<HeldRank>& held,
                                        std::size_t p, std::size_t k, std::size_t rank) {
  const DeclaredParam& param = subject.params[p];
  const DeclaredPart& part = param.parts[k];
  const std::optional<HeldRun> here = detail::single_source(param, held[rank][p], k, rank);
  const auto [offset, size] = part_rows(param, k, rank);
  if (offset + size <= held[rank][p].shape.rows())
    for (const HeldRun& run : held_rows(held[rank][p], offset, offset + size))
      if (!run.tensor)
        return {"a part of the parameter was never loaded", "call weight_loader for every part"};
  if (!here || here->tensor != part.tensor) {
    for (const DeclaredPart& other : param.parts)
      if (here && here->tensor == other.tensor && here->source == other.rows[rank])
        return {"the parts " + part.label + " and " + other.label + " are exchanged",
                "give each tensor its own shard id"};
    if (param.parts.size() > 1) {
      for (const DiskTensor& t : subject.tensors)
        if (t.param == param.name && t.layout.parts().size() > 1)
          return {"the fused tensor was cut as one block, or in another order than it has on disk",
                  "split it into its parts by its layout, cut each part, then join them per rank"};
      return {"a tensor went to another part's place",
              "the offset in the parameter is the sum of the parts before, divided by tp"};
    }
    return {"several tensors meet in one part", ""};
  }
  bool all_first = held.size() > 1, modulo = part.granule > 0, constant = true;
  const Index shift = here->source.empty() || detail::declared(param, part, rank).empty()
                          ? 0
                          : here->source[0] - detail::declared(param, part, rank)[0];
  for (std::size_t r = 0; r < held.size(); ++r) {
    const auto source = detail::single_source(param, held[r][p], k, r);
    const Runs& wanted = detail::declared(param, part, r);
    if (!source || source->source.empty() || wanted.empty()) return {"", ""};
    all_first = all_first && source->source == detail::declared(param, part, 0);
    const Index extent = part.tensor->shape.dim(param.tp_dim == 1 ? 1 : 0);
    modulo = modulo && source->source[0] == static_cast<Index>(r) * wanted.size() % extent;
    constant = constant && (source->source[0] - wanted[0] == shift || r + 1 == held.size());
  }
  if (all_first)
    return {"the rank was taken as 0: every rank holds the first part",
            "pass this rank's tp_rank to the loader"};
  if (modulo)
    return {"replicas were dealt out by rank % parts",
            "neighbouring ranks share: rank / (tp / parts)"};
  if (constant && shift != 0)
    return {"the offset is off by " + std::to_string(shift),
            "start at tp_rank times the shard's size"};
  return {"the ranks' parts are in another order", "rank r holds part r"};
}

}  // namespace tpsim
