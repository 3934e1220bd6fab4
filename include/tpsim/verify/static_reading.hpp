// SPDX-License-Identifier: MIT
// The static reading: one run of the module and of full() without numbers, at full size.
#pragma once

#include <set>

#include <tpsim/backend/field/soundness.hpp>
#include <tpsim/verify/cover.hpp>
#include <tpsim/verify/heads.hpp>
#include <tpsim/verify/order.hpp>
#include <tpsim/verify/partners.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim {

/// What the static reading learns; the other readings and the report take from it.
struct StaticReading {
  std::vector<HeldRank> held;       ///< [rank][param]
  std::vector<CheckResult> checks;  ///< divide is the caller's: an illegal shape has no subject
  Trace trace;
  SoundnessFigures soundness;  ///< for one token; oracle calls grow with the tokens
  Cost cost;                   ///< of f32 weights and activations: see scale_cost
};

namespace detail {

[[nodiscard]] inline HeldParam held_param(std::string name, const SymbolicParam& param) {
  return {std::move(name), param.shape(), param.pieces(), param.unwritten(), param.overwritten()};
}

inline void settle(CheckResult& c) {
  c.result = !c.findings.empty() ? Outcome::fail : c.compared > 0 ? Outcome::pass : Outcome::skip;
}

[[nodiscard]] inline std::string count_of(Index n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

/// "1 all_reduce" or "no collective".
[[nodiscard]] inline std::string collectives_text(const Trace& trace) {
  std::vector<std::pair<std::string, Index>> counts;
  for (const CollectiveRecord& r : trace) {
    if (r.op == CollectiveOp::split || r.op == CollectiveOp::barrier) continue;
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
  for (std::size_t r = 0; r < expected.size(); ++r) {
    if (!runs.outputs[r]) continue;
    result.compared += expected[r].width();
    const std::optional<Mismatch> m = compare(context, *runs.outputs[r], expected[r]);
    if (!m) continue;
    bool partial = false, several = false;
    for (const ColumnRun& run : runs.outputs[r]->columns)
      for (const Term& t : run.terms) {
        const auto times = t.summed.uniform();
        partial = partial || !times;
        several = several || (times && Rational(1) < *times);
      }
    const std::string cause = partial
                                  ? "a reducing collective is missing, or its group is too small"
                              : several ? "a value was summed that was already whole"
                                        : "the rank computed another value than full()";
    const std::string repair =
        partial   ? "all_reduce over the whole tensor-parallel group before the value is used"
        : several ? "reduce once, and add a bias on one rank or after the reduction"
                  : "";
    result.findings.push_back(
        {"state", static_cast<int>(r), "output",
         "rank " + std::to_string(r) + ": output " +
             (m->column < 0 ? "" : "column " + std::to_string(m->column) + " ") + m->text,
         cause, repair});
  }
  std::vector<const SymbolicTensor*> all;
  for (const auto& o : runs.outputs)
    if (o) all.push_back(&*o);
  if (all.size() != runs.outputs.size()) {
    result.message = "the forward pass did not finish";
  } else if (result.findings.empty()) {
    bool parallel = false;
    for (const Runs& c : subject.input_columns)
      parallel = parallel || !c.is_range(0, subject.input_width);
    const PlacementKind kind = placement(context, all).kind;
    result.message = std::string("input ") + (parallel ? "sharded by column" : "replicated") +
                     ", output " +
                     (kind == PlacementKind::replicated ? "replicated"
                      : subject.heads                   ? "sharded by head"
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
  CheckResult result{.id = "collectives", .compared = static_cast<Index>(runs.trace.size())};
  result.message = runs.trace.empty() ? "no collective"
                                      : collectives_text(runs.trace) + ", in the same order on " +
                                            count_of(subject.tp, "rank");
  if (!subject.collectives || !runs.findings.empty()) return result;
  std::vector<CollectiveOp> whole;  // those of the whole group
  for (const CollectiveRecord& r : runs.trace)
    if (r.op != CollectiveOp::split && r.group_size == subject.tp) whole.push_back(r.op);
  result.compared = std::max(result.compared, static_cast<Index>(subject.collectives->size()));
  if (whole == *subject.collectives) return result;
  const auto list = [](const std::vector<CollectiveOp>& ops) {
    std::string out;
    for (const CollectiveOp op : ops) out += (out.empty() ? "" : ", ") + std::string(name(op));
    return out.empty() ? "none" : out;
  };
  result.findings.push_back(
      {"collectives", -1, "",
       "the ranks call " + list(whole) + " together, wanted " + list(*subject.collectives),
       whole.size() > subject.collectives->size()
           ? "a collective is redundant"
           : "a collective is missing, or its group is too small",
       ""});
  return result;
}

}  // namespace detail

/// @post every check of the static reading is in `checks`, also when an earlier one fails
[[nodiscard]] inline StaticReading read_statically(const Subject& subject, Schedule schedule = {}) {
  StaticReading out;
  SymbolicContext context;
  out.held.resize(static_cast<std::size_t>(subject.tp));
  const auto input = [&](SymbolicBackend& b) {
    return b.input("x", subject.tokens, subject.input_width);
  };
  const auto runs = run_ranks<SymbolicBackend>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<SymbolicBackend>(context, rank); }, input,
      [&](std::size_t r, SymbolicBackend&, ModuleOn<SymbolicBackend>& module) {
        // In the order of the declaration; a param that the module lacks is empty.
        for (const DeclaredParam& p : subject.params) {
          HeldParam held{p.name, Shape(0, 0), {}, {}, {}};
          for (const auto& [name, param] : module.params())
            if (name == p.name) held = detail::held_param(name, *param);
          out.held[r].push_back(std::move(held));
        }
      },
      schedule);
  for (std::size_t r = 0; r < out.held.size(); ++r)
    while (out.held[r].size() < subject.params.size())
      out.held[r].push_back({subject.params[out.held[r].size()].name, Shape(0, 0), {}, {}, {}});

  SymbolicBackend reference(context, -1);
  const FullParams<SymbolicBackend> tensors = full_params(reference, subject.tensors);
  const std::vector<SymbolicTensor> full = subject.full(reference, input(reference), tensors);
  std::vector<SymbolicTensor> expected;
  for (std::size_t r = 0; r < out.held.size(); ++r)
    expected.push_back(expected_output(reference, subject, full, r));

  out.checks = {check_cover(subject, out.held),
                check_order(subject, out.held),
                check_heads(subject, out.held),
                check_partners(subject, out.held),
                detail::check_state(subject, context, runs, expected),
                detail::check_collectives(subject, runs)};
  // What the loader, the communicator and the backend reported goes to the check that it names.
  std::vector<Finding> reported = runs.findings;
  reported.insert(reported.end(), context.findings().begin(), context.findings().end());
  for (Finding& f : reported) {
    auto it = std::find_if(out.checks.begin(), out.checks.end(),
                           [&](const CheckResult& c) { return c.id == f.check; });
    if (it == out.checks.end())
      it = std::find_if(out.checks.begin(), out.checks.end(),
                        [](const CheckResult& c) { return c.id == "cover"; });
    if (it->findings.empty()) it->message = f.message;
    it->findings.push_back(std::move(f));
  }
  for (CheckResult& c : out.checks) detail::settle(c);

  out.trace = runs.trace;
  // Degrees of the program and of full(): where they agree these are the same values.
  std::vector<ValueId> results;
  for (const auto& output : runs.outputs)
    if (output)
      for (const Column& c : canonical(context, *output)) results.push_back(c.value);
  for (const SymbolicTensor& t : full)
    for (const Column& c : canonical(context, t)) results.push_back(c.value);
  out.soundness = context.soundness(results, 1);
  for (int r = 0; r < subject.tp; ++r) {
    out.cost.weight_bytes.push_back(context.cost(r).weight_bytes(DType::f32));
    out.cost.flop.push_back(context.cost(r).flops);
  }
  out.cost.full_weight_bytes = context.cost(-1).weight_bytes(DType::f32);
  out.cost.full_flop = context.cost(-1).flops;
  return out;
}

}  // namespace tpsim
