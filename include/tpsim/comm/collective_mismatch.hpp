// SPDX-License-Identifier: MIT
// The finding `collectives`: ranks that do not issue the same collectives.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/comm/trace.hpp>

namespace tpsim {

/// Where one rank stood when no rank could go on. Plain data, fit for a report.
struct RankReport {
  int rank = 0;                    ///< in the world
  bool returned = false;           ///< its function ended; the fields of the call are then its last
  bool meeting = false;            ///< it waits in VirtualRanks::meet; likewise
  Index collectives = 0;           ///< how many it completed, over all groups
  std::optional<CollectiveOp> op;  ///< none if it returned without any collective
  Reduction reduction = Reduction::sum;
  std::optional<Shape> shape;  ///< of its input; none for barrier and split
  std::optional<DType> dtype;
  int dim = -1;         ///< -1 where the operation has none
  int root = -1;        ///< -1 where the operation has none
  std::string group;    ///< "world", "world/0", ...
  int group_rank = -1;  ///< its rank inside `group`
  Index sequence = 0;   ///< number of the collective inside `group`, from 0
  CallSite at;

  /// "all_reduce(sum) [4, 8] f32 in world #0 at tpsim/layers/linear.hpp:120"
  [[nodiscard]] std::string str() const {
    std::string text;
    if (returned || meeting) {
      text = (returned ? "returned after " : "waits outside of a collective after ") +
             std::to_string(collectives) + (collectives == 1 ? " collective" : " collectives");
      if (!op) return text;
      text += ", the last ";
    }
    text += name(*op);
    if (*op == CollectiveOp::all_reduce || *op == CollectiveOp::reduce_scatter)
      text += "(" + std::string(name(reduction)) + ")";
    if (shape) text += " " + shape->str();
    if (dtype) text += " " + std::string(name(*dtype));
    if (dim >= 0) text += " dim " + std::to_string(dim);
    if (root >= 0) text += " root " + std::to_string(root);
    return text + " in " + group + " #" + std::to_string(sequence) + " at " + where(at);
  }
};

/// Ranks issued collectives that do not match, or wait for a rank that will not come: where NCCL
/// would hang; or they agree on one that cannot be (no such root, an extent that does not divide).
/// The text lists every rank of the world (equal neighbours share a line); the violations, all of
/// rule `collectives`, say what differs.
class CollectiveMismatch : public LayoutError {
 public:
  /// @param agreed  the ranks agree, on a collective that cannot be
  CollectiveMismatch(std::vector<RankReport> ranks, std::vector<Violation> violations, bool agreed)
      : LayoutError((agreed ? "the ranks agree on a collective that cannot be"
                            : "the ranks do not meet in one collective; NCCL would hang here") +
                        list(ranks),
                    std::move(violations),
                    agreed ? "root and dim must exist, and reduce_scatter and all_to_all need an "
                             "extent that divides by the size of the group"
                           : "every rank of a group must call the same collectives in the same "
                             "order"),
        ranks_(std::move(ranks)) {}
  /// One report per rank of the world, in rank order.
  [[nodiscard]] const std::vector<RankReport>& ranks() const { return ranks_; }

 private:
  static std::string list(const std::vector<RankReport>& ranks) {
    std::string text;
    for (std::size_t i = 0; i < ranks.size();) {
      const std::string what = ranks[i].str();
      std::size_t end = i + 1;
      while (end < ranks.size() && ranks[end].str() == what) ++end;
      text += "\n  rank" + std::string(end - i > 1 ? "s " : " ") + std::to_string(ranks[i].rank) +
              (end - i > 1 ? "-" + std::to_string(ranks[end - 1].rank) : "") + ": " + what;
      i = end;
    }
    return text;
  }
  std::vector<RankReport> ranks_;
};

}  // namespace tpsim
