// SPDX-License-Identifier: MIT
// Runs a law on many random cases and, when it fails, tells the smallest one and how to run it
// again. Needs no test framework; properties/catch.hpp makes Catch2 tests of it.
#pragma once

#include <sstream>

#include <properties/law.hpp>

namespace tpsim::properties {

struct PropertyResult {
  bool passed = false;
  bool left_out = false;  ///< RC_PARAMS repeats a failure of another property, and only that
  std::string text;       ///< the report of a failure, with a final newline; "" when passed
  Index compared = 0;
  int cases = 0;

  // After a failure.
  Case smallest;
  std::string because;
  std::string command;    ///< `tpsim --tp 2 --layer qkv ...`; "" for a user's module
  std::string reproduce;  ///< value for RC_PARAMS that runs the smallest case alone
  int tests = 0, shrinks = 0;
};

/// RapidCheck's settings and the failures to repeat: those of the environment (RC_PARAMS), unless a
/// test of the properties themselves fixes them.
using Settings = rc::detail::Configuration;

namespace detail {

class CountingListener final : public rc::detail::TestListener {
 public:
  int tests = 0, shrinks = 0;
  void onTestCaseFinished(const rc::detail::CaseDescription& /*description*/) override { ++tests; }
  void onShrinkTried(const rc::detail::CaseDescription& /*shrink*/, bool accepted) override {
    ++tests;
    shrinks += accepted ? 1 : 0;
  }
  void onTestFinished(const rc::detail::TestMetadata& /*metadata*/,
                      const rc::detail::TestResult& /*result*/) override {}
};

inline void tag_case(const LayerSpec& s) {
  const bool power_of_two = s.tp > 0 && (s.tp & (s.tp - 1)) == 0;
  RC_CLASSIFY(!power_of_two, "tp is not a power of two");
  RC_CLASSIFY(s.layer == "qkv" && s.tp > s.qkv.kv_heads, "more ranks than kv heads");
  bool equal = true;
  for (const MergedPart& part : s.parts) equal = equal && part.rows == s.parts[0].rows;
  RC_CLASSIFY(s.layer == "merged" && !equal, "unequal parts");
}

[[nodiscard]] inline std::string failure_text(const std::string& name, const Law& law,
                                              const Settings& settings, const PropertyResult& r) {
  std::string quoted;
  for (const char c : law.sentence)
    quoted += std::string("\"$`\\").find(c) == std::string::npos ? c : '.';
  return name + "  FAILED\n  law        " + law.id + "\n  smallest   " + describe(r.smallest) +
         "   (" + std::to_string(r.tests) + " tests, " + std::to_string(r.shrinks) +
         " shrinks)\n  because    " + r.because +
         (r.command.empty()
              ? "\n  run again  RC_PARAMS=\"" + r.reproduce + "\" and the same test"
              : "\n  run again  " + r.command + "\n  or         RC_PARAMS=\"" + r.reproduce +
                    "\" ctest -R \"" + quoted + "\" --output-on-failure") +
         "\n  seed       " + std::to_string(settings.testParams.seed) + "\n";
}

}  // namespace detail

/// "qkv: params partition the full tensor"
[[nodiscard]] inline std::string property_name(const Law& law, const Candidate& candidate) {
  return candidate.layer + ": " + law.sentence;
}

/// Applies the law to as many cases as RapidCheck is set to (100), and shrinks the first that
/// fails.
[[nodiscard]] inline PropertyResult run_property(
    const Law& law, const Candidate& candidate,
    const Settings& settings = rc::detail::configuration()) {
  PropertyResult out;
  const std::string name = property_name(law, candidate);
  out.left_out = !settings.reproduce.empty() && settings.reproduce.count(name) == 0;
  if (out.left_out) return out;
  if (law.on_illegal && !candidate.has_illegal()) {
    out.passed = true;
    return out;
  }
  const rc::Gen<Case> cases =
      law.on_illegal ? candidate.illegal_or_own() : candidate.legal_or_own();
  const auto holds = [&] {
    const Case c = *cases;
    detail::tag_case(c.spec);
    const Verdict verdict = judge(law, candidate, c);
    out.compared += verdict.compared;
    if (verdict.because.empty()) return true;
    // Shrinking goes on from failures only, so the last failure is the smallest.
    out.smallest = verdict.variation.value_or(c);
    out.because = verdict.because;
    return false;
  };
  detail::CountingListener listener;
  // The name is also RapidCheck's id: without one it makes no string to reproduce a failure.
  const rc::detail::TestResult result =
      rc::detail::checkProperty(rc::detail::toProperty(holds), {name, name}, settings.testParams,
                                listener, settings.reproduce);
  out.tests = listener.tests;
  out.shrinks = listener.shrinks;
  if (result.is<rc::detail::SuccessResult>()) {
    out.passed = true;
    out.cases = result.get<rc::detail::SuccessResult>().numSuccess;
  } else if (result.is<rc::detail::FailureResult>() && !out.because.empty()) {
    const auto& failure = result.get<rc::detail::FailureResult>();
    Settings again;
    again.reproduce.emplace(name, failure.reproduce);
    out.cases = failure.numSuccess;
    out.reproduce = rc::detail::configToMinimalString(again);
    // RapidCheck's defaults include a random seed, which a reproduced case does not use.
    if (const auto at = out.reproduce.find("reproduce="); at != std::string::npos)
      out.reproduce = out.reproduce.substr(at, out.reproduce.find(' ', at) - at);
    out.command = command_line(out.smallest, candidate.fault);
    out.text = detail::failure_text(name, law, settings, out);
  } else {
    std::ostringstream why;
    rc::detail::printResultMessage(result, why);
    out.because = why.str();
    out.text = name + "  FAILED\n  law        " + law.id + "\n  because    " + out.because + "\n";
  }
  return out;
}

}  // namespace tpsim::properties
