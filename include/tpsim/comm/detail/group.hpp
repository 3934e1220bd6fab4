// SPDX-License-Identifier: MIT
// One group of ranks: the calls that have arrived, and whether they match.
#pragma once

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/comm/trace.hpp>

namespace tpsim::detail {

/// Gives Communicator::Call a name outside of communicators.
struct CallOf : Communicator {
  using Communicator::Call;
  using Communicator::forward_to;
};
using Call = CallOf::Call;

/// One rank's call, with what the others will compare.
struct Arrival {
  Call call{};
  bool has_input = false;
  Shape shape;                         ///< of the input, if any
  DType dtype = DType::f32;            ///< of the input, if any
  std::string_view tensor;             ///< which TensorOps
  int color = 0, key = 0;              ///< of a split
  std::unique_ptr<Communicator> part;  ///< result of a split
};

/// @throws std::invalid_argument where a tensor is missing
[[nodiscard]] inline Arrival make_arrival(const Call& call, int group_rank) {
  Arrival a;
  a.call = call;
  if (call.op == CollectiveOp::barrier) return a;
  const bool rooted = call.root >= 0 && call.root != group_rank;
  const bool needs_in = call.op != CollectiveOp::broadcast || !rooted;
  const bool needs_out = call.op != CollectiveOp::gather || !rooted;
  if ((needs_in && call.in.tensor == nullptr) || (needs_out && call.out.tensor == nullptr) ||
      (call.in.tensor != nullptr && call.in.ops == nullptr) ||
      (needs_out && call.out.ops == nullptr))
    throw std::invalid_argument(std::string(name(call.op)) + ": no tensor given, at " +
                                where(call.at));
  if (call.in.tensor == nullptr) return a;
  a.has_input = true;
  a.shape = call.in.ops->shape(call.in.tensor);
  a.dtype = call.in.ops->dtype(call.in.tensor);
  a.tensor = call.in.ops->kind();
  return a;
}

struct Group {
  std::string name;
  std::vector<int> members;       ///< world ranks, by group rank
  std::vector<Arrival> arrivals;  ///< by group rank
  int arrived = 0;
  int splits = 0;
  Index sequence = 0;
  std::vector<Violation> broken;  ///< why the arrivals do not match, once all are here
  bool agreed = false;            ///< they do match, and are broken all the same

  Group(std::string group_name, std::vector<int> world_ranks)
      : name(std::move(group_name)), members(std::move(world_ranks)), arrivals(members.size()) {}
  [[nodiscard]] int size() const { return static_cast<int>(members.size()); }
  [[nodiscard]] bool complete() const { return arrived == size(); }
};

[[nodiscard]] inline bool joins(CollectiveOp op) {
  return op == CollectiveOp::all_gather || op == CollectiveOp::gather;
}

/// The part of the shape that all ranks must share.
[[nodiscard]] inline Shape common_shape(const Arrival& a) {
  const bool along = joins(a.call.op) && a.call.dim >= 0 && a.call.dim < a.shape.rank();
  return along ? a.shape.with(a.call.dim, 0) : a.shape;
}

[[nodiscard]] inline bool match(const Arrival& a, const Arrival& b) {
  if (a.call.op != b.call.op || a.call.reduction != b.call.reduction || a.call.dim != b.call.dim ||
      a.call.root != b.call.root)
    return false;
  if (!a.has_input || !b.has_input) return true;
  return a.dtype == b.dtype && a.tensor == b.tensor && common_shape(a) == common_shape(b);
}

/// Everything that differs between the arrivals of a complete group that do not match().
[[nodiscard]] inline std::vector<Violation> differences(const Group& g) {
  std::vector<Violation> broken;
  const auto compare = [&](std::string_view what, std::string (*text)(const Arrival&)) {
    const Arrival* first = nullptr;
    std::size_t at = 0;
    for (std::size_t r = 0; r < g.arrivals.size(); ++r) {
      const Arrival& a = g.arrivals[r];
      if (text(a).empty()) continue;  // nothing to compare
      if (first == nullptr) {
        first = &a;
        at = r;
      } else if (text(a) != text(*first)) {
        broken.push_back({"collectives", "group " + g.name + " #" + std::to_string(g.sequence) +
                                             ": different " + std::string(what) + ", " +
                                             text(*first) + " on rank " +
                                             std::to_string(g.members[at]) + " and " + text(a) +
                                             " on rank " + std::to_string(g.members[r])});
        return;
      }
    }
  };
  compare("operations", [](const Arrival& a) { return std::string(name(a.call.op)); });
  if (!broken.empty()) return broken;  // the rest would follow from it
  compare("reductions", [](const Arrival& a) { return std::string(name(a.call.reduction)); });
  compare("dims", [](const Arrival& a) { return std::to_string(a.call.dim); });
  compare("roots", [](const Arrival& a) { return std::to_string(a.call.root); });
  compare("dtypes", [](const Arrival& a) {
    return a.has_input ? std::string(name(a.dtype)) : std::string();
  });
  compare("tensor types",
          [](const Arrival& a) { return std::string(a.has_input ? a.tensor : ""); });
  const auto shape = [](const Arrival& a) { return a.has_input ? a.shape.str() : std::string(); };
  // Only extents off `dim` count in a gather, so the shapes are compared once they matter.
  const Arrival* first = nullptr;
  for (const Arrival& a : g.arrivals) {
    if (!a.has_input) continue;
    if (first == nullptr) first = &a;
    if (common_shape(a) != common_shape(*first)) {
      compare("shapes", shape);
      break;
    }
  }
  return broken;
}

/// What is wrong with arrivals that do match: a root or dim that is not there, an extent that does
/// not divide.
[[nodiscard]] inline std::vector<Violation> impossible(const Group& g) {
  std::vector<Violation> broken;
  const Arrival& a = g.arrivals.front();
  const CollectiveOp op = a.call.op;
  const auto add = [&](const std::string& text) {
    broken.push_back({"collectives", "group " + g.name + " #" + std::to_string(g.sequence) + ": " +
                                         std::string(name(op)) + " " + text});
  };
  if ((op == CollectiveOp::gather || op == CollectiveOp::broadcast) &&
      (a.call.root < 0 || a.call.root >= g.size()))
    add("has root " + std::to_string(a.call.root) + " in a group of " + std::to_string(g.size()));
  const bool cuts = op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_to_all;
  if (!cuts && !joins(op)) return broken;
  if (a.call.dim < 0 || a.call.dim >= a.shape.rank())
    add("has dim " + std::to_string(a.call.dim) + " of a tensor " + a.shape.str());
  else if (cuts && a.shape.dim(a.call.dim) % g.size() != 0)
    add("of " + a.shape.str() + ": " + std::to_string(a.shape.dim(a.call.dim)) +
        " entries along dim " + std::to_string(a.call.dim) + " do not divide over " +
        std::to_string(g.size()) + " ranks");
  return broken;
}

/// One new group of a split.
struct SplitPart {
  std::string name;
  std::vector<int> ranks;  ///< in the group that was split, by rank in the new one
};
/// The name of colour `color` of the `count`-th split of a group (from 1). Colours of different
/// splits are different groups: "world/0", then "world#2/0".
[[nodiscard]] inline std::string part_name(const std::string& group, int count, int color) {
  return group + (count > 1 ? "#" + std::to_string(count) : std::string()) + "/" +
         std::to_string(color);
}
/// The new groups of a complete split, by colour; ranks ordered by (key, rank).
[[nodiscard]] inline std::vector<SplitPart> split_parts(Group& g) {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // (key, rank in g)
  for (int r = 0; r < g.size(); ++r) {
    const Arrival& a = g.arrivals[static_cast<std::size_t>(r)];
    if (a.color >= 0) colors[a.color].emplace_back(a.key, r);
  }
  ++g.splits;
  std::vector<SplitPart> parts;
  for (auto& [color, order] : colors) {
    std::sort(order.begin(), order.end());
    SplitPart part{part_name(g.name, g.splits, color), {}};
    for (const auto& [key, r] : order) part.ranks.push_back(r);
    parts.push_back(std::move(part));
  }
  return parts;
}

[[nodiscard]] inline std::logic_error refusal() {
  return std::logic_error(
      "a collective was called while an exception was being handled: the other ranks would wait "
      "for an error they do not know of; leave the handler first");
}

}  // namespace tpsim::detail
