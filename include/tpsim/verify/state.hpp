// SPDX-License-Identifier: MIT
// Checks `state` and `collectives`: what the ranks return, how the group communicated.
#pragma once

#include <tpsim/verify/report.hpp>
#include <tpsim/verify/run_ranks.hpp>
#include <tpsim/verify/state_cause.hpp>

namespace tpsim::detail {

inline void settle(CheckResult& c) {
  c.result = !c.findings.empty() ? Outcome::fail : c.compared > 0 ? Outcome::pass : Outcome::skip;
}

[[nodiscard]] inline std::string count_of(Index n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

/// Collectives that move values: a split makes groups, a barrier only waits.
[[nodiscard]] inline bool moves_values(const CollectiveRecord& r) {
  return r.op != CollectiveOp::split && r.op != CollectiveOp::barrier;
}

/// "1 all_reduce" or "no collective".
[[nodiscard]] inline std::string collectives_text(const Trace& trace) {
  std::vector<std::pair<std::string, Index>> counts;
  for (const CollectiveRecord& r : trace) {
    if (!moves_values(r)) continue;
    auto it = std::find_if(counts.begin(), counts.end(),
                           [&](const auto& c) { return c.first == name(r.op); });
    if (it == counts.end())
      counts.emplace_back(name(r.op), 1);
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [op, n] : counts)
    out += (out.empty() ? "" : ", ") + std::to_string(n) + " " + op;
  return out.empty() ? "no collective" : out;
}

/// Check `state`: the outputs are full()'s values, whole, in the declared columns on every rank.
[[nodiscard]] inline CheckResult check_state(const Subject& subject, SymbolicContext& context,
                                             const RankRuns<SymbolicBackend>& runs,
                                             const std::vector<SymbolicTensor>& expected) {
  CheckResult result{.id = "state"};
  std::vector<const SymbolicTensor*> all;
  for (const auto& o : runs.outputs)
    if (o) all.push_back(&*o);
  if (all.size() != runs.outputs.size()) {
    // What stopped it is a finding of its own; results on the way would be blamed for it.
    result.message = "the forward pass did not finish";
    return result;
  }
  const StateCause cause(subject, context, runs, expected);
  for (std::size_t r = 0; r < expected.size(); ++r) {
    result.compared += expected[r].width();
    const std::optional<Mismatch> m = compare(context, *runs.outputs[r], expected[r]);
    if (!m) continue;
    auto [why, repair] = cause.of(r);
    result.findings.push_back(
        {"state", static_cast<int>(r), "output",
         "rank " + std::to_string(r) + ": output " +
             (m->column < 0 ? "" : "column " + std::to_string(m->column) + " ") + m->text,
         std::move(why), std::move(repair)});
  }
  if (result.findings.empty()) {
    bool parallel = false;
    for (const Runs& c : subject.input_columns)
      parallel = parallel || !c.is_range(0, subject.input_width);
    const PlacementKind kind = placement(context, all).kind;
    bool on_one = subject.tp > 1;  // rank 0 has all of it
    for (std::size_t r = 1; r < all.size(); ++r) on_one = on_one && all[r]->width() == 0;
    result.message = std::string("input ") + (parallel ? "sharded by column" : "replicated") +
                     ", output " +
                     (on_one                              ? "on rank 0"
                      : kind == PlacementKind::replicated ? "replicated"
                      : subject.heads                     ? "sharded by head"
                                                          : "sharded by column") +
                     "; " + collectives_text(runs.trace);
  } else {
    result.message = result.findings.front().message;
  }
  return result;
}

/// Check `collectives`: ranks that do not call the same ones end the run with a finding; here, that
/// the group as a whole performed those that the subject declares, no fewer and no more.
[[nodiscard]] inline CheckResult check_collectives(const Subject& subject,
                                                   const RankRuns<SymbolicBackend>& runs) {
  CheckResult result{.id = "collectives"};
  std::vector<CollectiveOp> whole;  // those of the whole group
  int smallest_group = subject.tp;
  for (const CollectiveRecord& r : runs.trace) {
    if (!moves_values(r)) continue;
    ++result.compared;
    smallest_group = std::min(smallest_group, r.group_size);
    if (r.group_size == subject.tp) whole.push_back(r.op);
  }
  result.message = result.compared == 0 ? "no collective"
                                        : collectives_text(runs.trace) + ", in the same order on " +
                                              count_of(subject.tp, "rank");
  if (!subject.collectives || !runs.findings.empty()) return result;
  result.compared = std::max(result.compared, static_cast<Index>(subject.collectives->size()));
  if (whole == *subject.collectives) return result;
  const auto list = [](const std::vector<CollectiveOp>& ops) {
    std::string out;
    for (const CollectiveOp op : ops) out += (out.empty() ? "" : ", ") + std::string(name(op));
    return out.empty() ? "none" : out;
  };
  const std::size_t wanted = subject.collectives->size();
  Finding f{"collectives",
            -1,
            "",
            "the ranks call " + list(whole) + " together, wanted " + list(*subject.collectives),
            "another collective is called",
            "call " + list(*subject.collectives)};
  if (whole.size() > wanted) {
    f.cause = "a collective is redundant";
    f.repair = "leave it out: the value is whole already";
  } else if (whole.size() < wanted && smallest_group < subject.tp) {
    f.cause = "a collective runs over " + std::to_string(smallest_group) + " of " +
              count_of(subject.tp, "rank");
    f.repair = "call it on the whole tensor-parallel group";
  } else if (whole.size() < wanted) {
    f.cause = "a collective is missing";
  }
  result.findings.push_back(std::move(f));
  return result;
}

/// A sum over wrong shards leaves out columns too: where the ranks call what they must and hold
/// what they must not, it is the shards' fault.
inline void blame_shards(const Subject& subject, std::vector<CheckResult>& checks) {
  CheckResult* state = nullptr;
  bool loaded = true, called = subject.collectives.has_value();
  for (CheckResult& c : checks) {
    if (c.id == "state") state = &c;
    if (c.id == "order") loaded = c.findings.empty();
    if (c.id == "collectives") called = called && c.findings.empty();
  }
  if (state == nullptr || loaded || !called) return;
  for (Finding& f : state->findings)
    if (f.cause == sum_leaves_out) {
      f.cause = "the ranks' shards do not add up to the whole tensor";
      f.repair = "load on each rank what `order` says";
    }
}

}  // namespace tpsim::detail
