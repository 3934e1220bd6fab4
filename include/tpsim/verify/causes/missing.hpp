// SPDX-License-Identifier: MIT
// Causes of entries that were never written, and of tensors in the place of others.
#pragma once

#include <tpsim/verify/causes/ranks_view.hpp>

namespace tpsim::detail {

/// The entries that were written where part k belongs, when they are of its own tensor and the
/// rest, at the end, was not written.
[[nodiscard]] inline std::optional<Runs> written_start(const RanksView& v, std::size_t k,
                                                       std::size_t rank) {
  const std::vector<HeldRun> runs = v.found(k, rank);
  if (runs.size() != 2 || runs[0].tensor != v.param().parts[k].tensor || runs[1].tensor)
    return std::nullopt;
  return runs[0].source;
}

/// Some entries of part k on `rank` were never written. Nothing when all were.
[[nodiscard]] inline std::optional<Cause> missing_cause(const RanksView& v, std::size_t k,
                                                        std::size_t rank) {
  const DeclaredPart& part = v.param().parts[k];
  bool missing = false, nothing = true;
  for (const HeldRun& run : v.found(k, rank)) {
    missing = missing || !run.tensor;
    nothing = nothing && !run.tensor;
  }
  if (!missing) return std::nullopt;
  if (nothing)
    for (std::size_t j = 0; j < v.param().parts.size(); ++j)
      for (const HeldRun& run : v.found(j, rank))
        if (run.tensor == part.tensor)
          return Cause{
              part.tensor->name + " was loaded into the place of " + v.param().parts[j].label,
              "look at its shard id, its offset, and how its name was matched"};

  bool start = true, cut_again = true;
  const Index ranks = static_cast<Index>(v.ranks());
  Index left_out = 0;
  for (std::size_t r = 0; r < v.ranks(); ++r) {
    const auto written = written_start(v, k, r);
    const Runs& wanted = v.wanted(k, r);
    if (!written) {
      start = cut_again = false;
      break;
    }
    left_out = wanted.size() - written->size();
    start = start && *written == wanted.slice(0, written->size());
    cut_again = cut_again && written->size() == wanted.size() / ranks &&
                *written == wanted.slice(static_cast<Index>(r) * written->size(), written->size());
  }
  if (cut_again && ranks > 1 && !v.param().tp_dim)
    return Cause{part.tensor->name + " was cut, but belongs whole on every rank",
                 "only the weight of a row-parallel layer is cut, never its bias"};
  if (cut_again && ranks > 1)
    return Cause{"the cut was applied to data that was cut before",
                 "give the loader the whole tensor, or load the rank's own part without a cut"};
  if (start)
    return Cause{"the last " + std::to_string(left_out) + " " + v.unit() +
                     " of each part were dropped: its size was rounded down to whole blocks",
                 "copy what is left after the last whole block too"};
  for (std::size_t r = 0; r < v.ranks(); ++r)
    if (!v.at(r).pieces.empty())
      return Cause{"a part of the parameter was never loaded", "call weight_loader for every part"};
  return Cause{"the parameter was never loaded",
               "call weight_loader with the tensor that fills it"};
}

/// Part k on `rank` holds entries of other tensors. Nothing when all are its own.
[[nodiscard]] inline std::optional<Cause> misplaced_cause(const RanksView& v, std::size_t k,
                                                          std::size_t rank) {
  const DeclaredPart& part = v.param().parts[k];
  const std::vector<HeldRun> here = v.found(k, rank);
  bool own = true;
  for (const HeldRun& run : here) own = own && run.tensor == part.tensor;
  if (own) return std::nullopt;
  for (std::size_t j = 0; j < v.param().parts.size() && here.size() == 1; ++j) {
    const DeclaredPart& other = v.param().parts[j];
    if (here[0].tensor != other.tensor || !(here[0].source == v.wanted(j, rank))) continue;
    const auto there = v.found(j, rank);
    if (there.size() == 1 && there[0].tensor == part.tensor)
      return Cause{"the parts " + part.label + " and " + other.label + " are exchanged",
                   "give each tensor its own shard id"};
    if (there.size() == 1 && !there[0].tensor)
      return Cause{other.tensor->name + " was loaded into the place of " + part.label,
                   "look at its shard id, its offset, and how its name was matched"};
  }
  return Cause{"a tensor went to another part's place",
               "the offset in the parameter is the sum of the parts before, divided by tp"};
}

}  // namespace tpsim::detail
