// SPDX-License-Identifier: MIT
// The exact reading: the module and full() over GF(2^61-1), equal or not, for as many seeds as the
// chance of a miss asks for.
#pragma once

#include <cmath>

#include <tpsim/verify/compare_outputs.hpp>
#include <tpsim/verify/static_reading.hpp>

namespace tpsim {

struct ExactOptions {
  std::uint64_t seed = 1;
  Index tokens = 4;  ///< at most; soundness does not grow with them, token mixing needs a few
  double log2_target = -60;  ///< seeds are added until the chance of a miss is below 2^this
  Schedule schedule = {};
};

/// Checks `exact` and `replicas`. The bound: kappa (C(N,2) d + D) / p per seed, with the degrees of
/// the static reading and N the oracle calls that the ranks and full() really made. Source:
/// Schwartz-Zippel; the keyed hash is taken for a random function.
[[nodiscard]] inline std::vector<CheckResult> read_exactly(const Subject& subject,
                                                           const SoundnessFigures& figures,
                                                           const ExactOptions& o = {}) {
  CheckResult exact{.id = "exact", .reading = Reading::exact},
      replicas{.id = "replicas", .reading = Reading::exact};
  const Index tokens = std::min(subject.tokens, o.tokens);
  StageDegrees degrees{0, static_cast<double>(figures.argument_degree),
                       static_cast<double>(figures.output_degree)};
  std::uint64_t seed = o.seed;
  int undefined = 0, done = 0;
  for (int needed = 1; done < needed; ++seed) {
    const auto context = std::make_shared<FieldContext>(FieldContext{mix(seed)});
    const auto input = [&](FieldBackend& b) { return b.input("x", tokens, subject.input_width); };
    try {
      const auto runs = run_ranks<FieldBackend>(
          subject, subject.tensors,
          [&](int rank) { return std::make_unique<FieldBackend>(context, rank); }, input,
          [](std::size_t, FieldBackend&, ModuleOn<FieldBackend>&) {}, o.schedule);
      FieldBackend reference(context, subject.tp);
      const std::vector<FieldTensor> full =
          subject.full(reference, input(reference), full_params(reference, subject.tensors));
      exact.findings.insert(exact.findings.end(), runs.findings.begin(), runs.findings.end());
      const auto at = [](const FieldTensor& t, Index row, Index col) { return t.at(row, col); };
      compare_with_full(subject, reference, runs, full, at, exact);
      compare_replicas(subject, runs, at, replicas);
      const auto calls = [](const FieldBackend& b) {
        return static_cast<double>(b.counters().oracle_calls + b.counters().comparisons);
      };
      double all = calls(reference);
      for (const auto& b : runs.backends) all += calls(*b);
      degrees.calls = std::max(degrees.calls, all);
    } catch (const Undefined& e) {
      if (++undefined > 16) {
        exact.findings.push_back(
            {"exact", -1, "",
             std::string(e.what()) + " at each of " + std::to_string(undefined) + " seeds",
             "a value is the same whatever the seed", ""});
        break;
      }
      continue;
    }
    ++done;
    if (!exact.findings.empty()) break;  // one seed that differs proves the fault
    const std::optional<int> seeds = seeds_needed(degrees, o.log2_target);
    if (!seeds) {
      exact.compared = 0;
      exact.message = "the layer is too large for this field: agreement would prove nothing";
      return {exact};
    }
    needed = *seeds;
  }
  exact.seeds = done;
  if (exact.findings.empty()) exact.log2_miss = done * log2_miss_per_seed(degrees);
  exact.message = exact.findings.empty()
                      ? "equal to full() in GF(2^61-1), " + std::to_string(exact.compared) +
                            " elements, " + detail::count_of(done, "seed")
                      : exact.findings.front().message;
  if (replicas.compared == 0)
    replicas.message = "no output is on several ranks";
  else if (replicas.findings.empty())
    replicas.message =
        "equal on all ranks that hold them, " + std::to_string(replicas.compared) + " elements";
  else
    replicas.message = replicas.findings.front().message;
  for (CheckResult* c : {&exact, &replicas}) detail::settle(*c);
  return {exact, replicas};
}

}  // namespace tpsim
