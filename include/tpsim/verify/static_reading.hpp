// SPDX-License-Identifier: MIT
// The static reading: one run of the module and of full() without numbers, at full size.
#pragma once

#include <map>

#include <tpsim/backend/field/soundness.hpp>
#include <tpsim/verify/arrival.hpp>
#include <tpsim/verify/cover.hpp>
#include <tpsim/verify/heads.hpp>
#include <tpsim/verify/order.hpp>
#include <tpsim/verify/partners.hpp>
#include <tpsim/verify/permutation.hpp>
#include <tpsim/verify/run_ranks.hpp>
#include <tpsim/verify/state.hpp>

namespace tpsim {

/// What the static reading learns; the other readings and the report take from it.
struct StaticReading {
  std::vector<HeldRank> held;       ///< [rank][param]
  std::vector<CheckResult> checks;  ///< divide is the caller's: an illegal shape has no subject
  /// The ranks hold an equivalent permutation of what is declared.
  bool permuted = false;
  Trace trace;
  SoundnessFigures soundness;  ///< for one token; oracle calls grow with the tokens
  Cost cost;                   ///< of f32 weights and activations: see scale_cost
};

namespace detail {

[[nodiscard]] inline HeldParam held_param(std::string name, const SymbolicParam& param) {
  return {std::move(name),   param.shape(),       param.pieces(),
          param.unwritten(), param.overwritten(), param.zeros()};
}

}  // namespace detail

/// @post every check of the static reading is in `checks`, also when an earlier one fails
template <class = void>
[[nodiscard]] StaticReading read_statically(const Subject& subject, Schedule schedule = {},
                                            Weakening weakening = Weakening::none) {
  StaticReading out;
  SymbolicContext context;
  context.weakening = weakening;
  if (!subject.token_ids.empty()) context.lookup_tokens = subject.tokens;
  out.held.resize(static_cast<std::size_t>(subject.tp));
  const auto input = [&](SymbolicBackend& b) {
    return b.input("x", subject.tokens, subject.input_width);
  };
  // Before the ranks: what it lets meet, they may let meet.
  SymbolicBackend reference(context, -1);
  const FullParams<SymbolicBackend> tensors = full_params(reference, subject.tensors);
  const std::vector<SymbolicTensor> full = subject.full(reference, input(reference), tensors);
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

  std::vector<SymbolicTensor> expected;
  for (std::size_t r = 0; r < out.held.size(); ++r)
    expected.push_back(expected_output(reference, subject, full, r));

  out.checks = {check_cover(subject, out.held),
                check_order(subject, out.held),
                check_heads(subject, out.held),
                check_partners(subject, out.held),
                detail::check_state(subject, context, runs, expected),
                detail::check_collectives(subject, runs)};
  detail::blame_shards(subject, out.checks);
  // What the loader, the communicator and the backend reported goes to the check that it names,
  // before what follows from it.
  std::vector<Finding> reported = runs.findings;
  reported.insert(reported.end(), context.findings().begin(), context.findings().end());
  const std::vector<Finding> arrival = arrival_findings(subject, out.held);
  reported.insert(reported.end(), arrival.begin(), arrival.end());
  std::map<std::string, std::ptrdiff_t> places;
  for (Finding& f : reported) {
    auto it = std::find_if(out.checks.begin(), out.checks.end(),
                           [&](const CheckResult& c) { return c.id == f.check; });
    if (it == out.checks.end())
      it = std::find_if(out.checks.begin(), out.checks.end(),
                        [](const CheckResult& c) { return c.id == "cover"; });
    std::ptrdiff_t& place = places[it->id];
    if (place == 0) it->message = f.message;
    it->findings.insert(it->findings.begin() + place++, std::move(f));
  }
  if (arrival.empty()) out.permuted = detail::excuse_permutation(subject, out.held, out.checks);
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
