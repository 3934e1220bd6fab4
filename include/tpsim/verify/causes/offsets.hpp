// SPDX-License-Identifier: MIT
// Causes of slices of the right tensor that start at the wrong place.
#pragma once

#include <algorithm>
#include <cstdlib>

#include <tpsim/verify/causes/ranks_view.hpp>

namespace tpsim::detail {

[[nodiscard]] inline bool is_first_everywhere(const RanksView& v, std::size_t k) {
  for (std::size_t r = 0; r < v.ranks(); ++r)
    if (const auto entries = v.own(k, r); !entries || !(*entries == v.wanted(k, 0))) return false;
  return v.ranks() > 1;
}

/// Every rank holds the first rank's entries of part k.
[[nodiscard]] inline Cause all_first_cause(const RanksView& v, std::size_t k) {
  const std::string& name = v.param().name;
  if (v.param().full_shape.rank() == 1 && name.ends_with("bias")) {
    const std::string weight = name.substr(0, name.size() - 4) + "weight";
    for (std::size_t p = 0; p < v.subject.params.size(); ++p)
      if (v.subject.params[p].name == weight && k < v.subject.params[p].parts.size() &&
          RanksView{v.subject, v.held, p}.is_right_everywhere(k))
        return {"the bias was not cut: every rank holds its first entries",
                "cut a column-parallel bias as the rows of its weight"};
  }
  if (v.param().parts[k].granule_name == "kv" && v.is_right_everywhere(0))
    return {"the kv heads do not follow the rank: every rank holds the first",
            "take the kv heads that the rank's query heads read"};
  return {"the rank was taken as 0: every rank holds the first part",
          "pass this rank's tp_rank to the loader"};
}

/// "the offset is off by one head (6 rows)".
[[nodiscard]] inline Cause shift_cause(const RanksView& v, std::size_t k, Index shift) {
  const Index head = v.param().parts[k].granule;
  if (head > 1 && shift % head == 0) {
    const Index heads = shift / head;
    return {"the offset is off by " +
                (heads == 1 ? std::string("one head")
                            : std::to_string(heads) + (std::abs(heads) == 1 ? " head" : " heads")) +
                " (" + std::to_string(shift) + " rows)",
            "start at tp_rank times the shard's size"};
  }
  return {"the offset is off by " + std::to_string(shift),
          "start at tp_rank times the shard's size"};
}

/// The offset grows from rank to rank by `step` in place of `shard`; by more, perhaps, where the
/// loader stopped at the end of the tensor.
[[nodiscard]] inline Cause step_cause(Index step, bool stopped, Index shard, Index tp) {
  const std::string sizes = std::string("the offset steps by ") + (stopped ? "at least " : "") +
                            std::to_string(step) + " from part to part, a part has " +
                            std::to_string(shard);
  const std::string repair = "start at tp_rank times the shard's size";
  if (step == shard / tp) return {sizes + ": the local size was divided by tp once more", repair};
  if (step > shard) return {sizes + ": a padded size was taken", repair};
  return {sizes, repair};
}

/// Are `entries` those of `right`, all moved by the same distance?
[[nodiscard]] inline bool is_moved(const Runs& entries, const Runs& right) {
  Runs moved;
  for (const Run& run : right)
    moved.append({run.begin + entries[0] - right[0], run.length, run.stride});
  return moved == entries;
}

/// What is wrong when no offset explains it: whose entries the ranks hold.
[[nodiscard]] inline Cause scattered_cause(const RanksView& v, std::size_t k) {
  const auto sorted = [](const Runs& runs) {
    std::vector<Index> all;
    for (const Run& run : runs)
      for (Index i = 0; i < run.length; ++i) all.push_back(run.at(i));
    std::sort(all.begin(), all.end());
    return all;
  };
  bool parts = true, own = true;
  for (std::size_t r = 0; r < v.ranks(); ++r) {
    const Runs entries = *v.own(k, r);
    bool found = false;
    for (std::size_t s = 0; s < v.ranks(); ++s) found = found || entries == v.wanted(k, s);
    parts = parts && found;
    own = own && sorted(entries) == sorted(v.wanted(k, r));
  }
  if (parts) return {"the ranks' parts are in another order", "rank r holds part r"};
  if (own)
    return {"a rank holds its own " + v.unit() + " in another order",
            "copy them in the order of the tensor"};
  return {"some " + v.unit() + " belong to another rank or to another place",
          "rank r holds part r, in the order of the tensor"};
}

/// Part k holds nothing but its own tensor on all ranks, on some of them other entries than
/// declared: the first signature that fits all ranks.
[[nodiscard]] inline Cause offset_cause(const RanksView& v, std::size_t k) {
  std::vector<Index> starts, wanted;
  bool next = v.ranks() > 1, modulo = v.ranks() > 1, solid = true;
  const Index extent = v.extent(k), shard = v.wanted(k, 0).size();
  for (std::size_t r = 0; r < v.ranks(); ++r) {
    const auto entries = v.own(k, r);
    const Runs& right = v.wanted(k, r);
    if (!entries || entries->empty() || right.size() != shard || shard == 0) return {};
    starts.push_back((*entries)[0]);
    wanted.push_back(right[0]);
    next = next && *entries == v.wanted(k, (r + 1) % v.ranks());
    // A loader that stops at the end of the tensor holds less than a moved part.
    solid = solid && (is_moved(*entries, right) || starts[r] + shard > extent);
    modulo = modulo && starts[r] == static_cast<Index>(r) * shard % extent;
  }
  if (is_first_everywhere(v, k)) {
    // A shard of fewer rows than ranks gives a step of 0: its neighbours tell which it is.
    bool same_elsewhere = true;
    for (std::size_t j = 0; j < v.param().parts.size(); ++j)
      same_elsewhere = same_elsewhere && (is_first_everywhere(v, j) || v.is_right_everywhere(j));
    return same_elsewhere ? all_first_cause(v, k) : step_cause(0, false, shard, v.subject.tp);
  }
  if (!solid) return scattered_cause(v, k);
  if (next)
    return {"the rank was taken as one more: every rank holds the next rank's part",
            "pass this rank's tp_rank to the loader"};
  if (modulo)
    return {"replicas were dealt out by rank % parts",
            "neighbouring ranks share: rank / (tp / parts)"};

  // A loader that would read behind the end is taken to stop there.
  const Index last = extent - shard;
  Index shift = 0, step = 0;
  for (std::size_t r = 0; r < starts.size(); ++r) {
    if (std::abs(starts[r] - wanted[r]) > std::abs(shift)) shift = starts[r] - wanted[r];
    if (step == 0 && wanted[r] == shard) step = starts[r];
  }
  bool shifted = shift != 0, stepped = true;
  for (std::size_t r = 0; r < starts.size(); ++r) {
    // One row too late, with the last row read twice, begins behind `last`.
    shifted = shifted &&
              (starts[r] == wanted[r] + shift || starts[r] == std::min(wanted[r] + shift, last));
    stepped = stepped && starts[r] == std::min(wanted[r] / shard * step, last);
  }
  if (shifted) return shift_cause(v, k, shift);
  if (stepped) return step_cause(step, step == last, shard, v.subject.tp);
  return scattered_cause(v, k);
}

}  // namespace tpsim::detail
