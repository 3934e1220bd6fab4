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

/// Checks `exact` and `replicas`. The bound: kappa (C(N,2) d + D) / p per seed, with the figures of
/// the static reading. Source: Schwartz-Zippel; the keyed hash is taken for a random function.
[[nodiscard]] inline std::vector<CheckResult> read_exactly(const Subject& subject,
                                                           const SoundnessFigures& one_token,
                                                           const ExactOptions& o = {}) {
  CheckResult exact{.id = "exact", .reading = Reading::exact},
      replicas{.id = "replicas", .reading = Reading::exact};
  const Index tokens = std::min(subject.tokens, o.tokens);
  const StageDegrees degrees{
      static_cast<double>(one_token.oracle_calls) * static_cast<double>(tokens),
      static_cast<double>(one_token.argument_degree), static_cast<double>(one_token.output_degree)};
  const std::optional<int> seeds = seeds_needed(degrees, o.log2_target);
  if (!seeds) {
    exact.message = "the layer is too large for this field: agreement would prove nothing";
    return {exact};
  }
  std::uint64_t seed = o.seed;
  int undefined = 0;
  for (int done = 0; done < *seeds; ++seed) {
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
    } catch (const Undefined& e) {
      if (++undefined > 16) {
        exact.findings.push_back({"exact", -1, "", std::string(e.what()) + " at 16 seeds",
                                  "a value is the same whatever the seed", ""});
        break;
      }
      continue;
    }
    ++done;
    if (!exact.findings.empty()) break;  // one seed that differs proves the fault
  }
  exact.seeds = *seeds;
  exact.log2_miss = *seeds * log2_miss_per_seed(degrees);
  exact.message = exact.findings.empty()
                      ? "equal to full() in GF(2^61-1), " + std::to_string(exact.compared) +
                            " elements, " + detail::count_of(*seeds, "seed")
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
