// SPDX-License-Identifier: MIT
// The exact reading: the module and full() over GF(2^61-1), equal or not, for as many seeds as the
// chance of a miss asks for.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <typeinfo>

#include <tpsim/verify/compare_outputs.hpp>
#include <tpsim/verify/output_cause.hpp>
#include <tpsim/verify/static_reading.hpp>

namespace tpsim {

struct ExactOptions {
  std::uint64_t seed = 1;
  /// At most; soundness does not grow with them, token mixing needs a few. Nothing: 4, or as many
  /// more as it takes for the ranks to share them out evenly, where they do.
  std::optional<Index> tokens = {};
  double log2_target = -60;  ///< seeds are added until the chance of a miss is below 2^this
  Schedule schedule = {};
  Weakening weakening = Weakening::none;  ///< for tests of the verifier alone
  RankWorld* world = nullptr;             ///< where the ranks live; null: in this process
};

namespace detail {

[[nodiscard]] inline Index exact_tokens(const Subject& subject, const Trace& trace) {
  const Index few = subject.exact_tokens.value_or(4);
  const Index tp = subject.tp;
  const bool shared_out = std::any_of(trace.begin(), trace.end(), [&](const CollectiveRecord& r) {
    return r.bytes > 0 && r.shape.rows() != subject.tokens;
  });
  return shared_out ? (few + tp - 1) / tp * tp : few;
}

/// What the chance of a miss grows with.
[[nodiscard]] inline double random_calls(const FieldBackend& b) {
  return static_cast<double>(b.counters().oracle_calls + b.counters().comparisons);
}

/// A wrong choice may agree by chance: one look at a few is not enough.
[[nodiscard]] inline int seeds_for_choices(const FieldTensor& choices) {
  constexpr Index enough = 16;
  const Index each = std::max<Index>(1, choices.tokens);
  return static_cast<int>((enough + each - 1) / each);
}

}  // namespace detail

/// Checks `exact` and `replicas`. The bound: kappa (C(N,2) d + D) / p per seed, with the degrees of
/// the static reading and N the oracle calls that the ranks and full() really made. Source:
/// Schwartz-Zippel; the keyed hash is taken for a random function.
template <class = void>
[[nodiscard]] std::vector<CheckResult> read_exactly(const Subject& subject,
                                                    const StaticReading& statics,
                                                    const ExactOptions& o = {}) {
  CheckResult exact{.id = "exact", .reading = Reading::exact},
      replicas{.id = "replicas", .reading = Reading::exact};
  const SoundnessFigures& figures = statics.soundness;
  const Index tokens =
      std::min(subject.tokens, o.tokens ? *o.tokens : detail::exact_tokens(subject, statics.trace));
  StageDegrees degrees{0, static_cast<double>(figures.argument_degree),
                       static_cast<double>(figures.output_degree)};
  const bool judges = o.world == nullptr || o.world->is_root();
  std::uint64_t seed = o.seed;
  int undefined = 0, done = 0, needed = 1;
  bool too_large = false;
  for (bool more = true; more; ++seed) {
    const auto context = std::make_shared<FieldContext>(FieldContext{mix(seed), o.weakening});
    const auto input = [&](FieldBackend& b) { return b.input("x", tokens, subject.input_width); };
    std::optional<std::string> no_value;  // why this seed gives none
    try {
      auto runs = run_ranks<FieldBackend>(
          subject, subject.tensors,
          [&](int rank) { return std::make_unique<FieldBackend>(context, rank); }, input,
          [](std::size_t, FieldBackend&, ModuleOn<FieldBackend>&) {}, o.schedule, o.world);
      double calls = 0;
      for (const auto& b : runs.backends) calls += detail::random_calls(*b);
      if (o.world != nullptr) calls = sum_on_root(*o.world, calls);
      if (judges) {
        if (o.weakening == Weakening::compare_rank_zero_only)
          for (std::size_t r = 1; r < runs.outputs.size(); ++r) runs.outputs[r].reset();
        FieldBackend reference(context, subject.tp);
        const std::vector<FieldTensor> full =
            subject.full(reference, input(reference), full_params(reference, subject.tensors));
        exact.findings.insert(exact.findings.end(), runs.findings.begin(), runs.findings.end());
        if (subject.chooses) needed = std::max(needed, detail::seeds_for_choices(full[0]));
        const auto at = [](const FieldTensor& t, Index row, Index col) { return t.at(row, col); };
        const auto cause = [&](std::size_t rank) {
          return output_cause<detail::FieldElements>(subject, reference, runs, full, rank);
        };
        compare_with_full(subject, reference, runs, full, at, cause, exact);
        compare_replicas(subject, runs, at, replicas);
        degrees.calls = std::max(degrees.calls, calls + detail::random_calls(reference));
      }
    } catch (const Undefined& e) {
      no_value = e.what();
    } catch (const RemoteError& e) {
      if (e.type() != typeid(Undefined).name()) throw;
      no_value = e.text();
    }
    if (no_value) {
      more = ++undefined <= 16;
      if (!more)
        exact.findings.push_back({"exact", -1, "",
                                  *no_value + " at each of " + std::to_string(undefined) + " seeds",
                                  "a value is the same whatever the seed", ""});
    } else {
      ++done;
      const std::optional<int> seeds = seeds_needed(degrees, o.log2_target);
      too_large = exact.findings.empty() && !seeds;
      if (seeds) needed = std::max(subject.chooses ? needed : 1, *seeds);
      // One seed that differs proves the fault.
      more = exact.findings.empty() && seeds && done < needed;
    }
    if (o.world != nullptr) more = value_of_root(*o.world, more);
  }
  if (too_large) {
    exact.compared = 0;
    exact.message = "the layer is too large for this field: agreement would prove nothing";
    return {exact};
  }
  exact.seeds = done;
  if (exact.findings.empty() && !subject.chooses)
    exact.log2_miss = done * log2_miss_per_seed(degrees);
  exact.message = exact.findings.empty()
                      ? (subject.chooses ? "the choices of full() in GF(2^61-1), "
                                         : "equal to full() in GF(2^61-1), ") +
                            std::to_string(exact.compared) + " elements, " +
                            detail::count_of(done, "seed")
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
