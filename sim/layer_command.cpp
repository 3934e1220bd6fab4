// SPDX-License-Identifier: MIT
// The layer check: verify, shrink what fails, report.
#include <langinfo.h>
#include <unistd.h>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/replay.hpp>
#include <tpsim/verify/shrink.hpp>
#include <tpsim/verify/verify.hpp>

#include "sim/commands.hpp"
#include "sim/report.hpp"
#include "sim/specs.hpp"

namespace tpsim::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Readings that stream every weight stay off, unless asked for, above this many elements (4 GiB).
constexpr Index interactive_elements = Index{1} << 30;

std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault) {
  return fault.empty() ? make_subject(spec) : make_faulty_subject(spec, fault);
}

CheckResult too_large(const char* id, Reading reading, const LayerRequest& request) {
  CheckResult check{.id = id, .reading = reading};
  check.message =
      fmt::format("the weights have over {} elements; '--reading {}' runs it all the same",
                  interactive_elements, name(reading));
  (void)request;
  return check;
}

LayerResult check_layer(const LayerRequest& request, const LayerSpec& spec) {
  const auto start = Clock::now();
  LayerResult result;
  result.spec = spec;
  Index elements = 0;
  for (const auto& [name, rows, cols] : weight_sizes(spec)) elements += rows * cols;
  const bool large = !request.readings_chosen && elements > interactive_elements;
  VerifyOptions options{request.statics,
                        request.exact && !large,
                        request.numeric && !large,
                        request.dtype,
                        request.seed,
                        {}};
  result.report = verify(*subject_of(spec, request.fault), options);
  if (large) {
    result.report.checks.push_back(too_large("exact", Reading::exact, request));
    result.report.checks.push_back(too_large("rounding", Reading::numeric, request));
  }
  if (!result.report.passed() && request.weights.empty() && !request.toy) {
    // The static reading is the cheapest; the exact one sees the rest.
    const auto fails = [&](const LayerSpec& s) {
      const auto subject = subject_of(s, request.fault);
      VerifyOptions cheap;
      cheap.numeric = cheap.exact = false;
      if (!verify(*subject, cheap).passed()) return true;
      Index size = 0;
      for (const auto& [name, rows, cols] : weight_sizes(s)) size += rows * cols;
      if (size > 1 << 16) return false;
      cheap.exact = true;
      return !verify(*subject, cheap).passed();
    };
    if (fails(spec)) {
      const Shrunk smallest = shrink(spec, fails);
      result.smallest_spec = smallest.spec;
      result.smallest = replay_command(smallest.spec, request.fault, request.seed);
      result.tests = smallest.tests;
      result.shrinks = smallest.shrinks;
    }
  }
  result.elapsed_s = seconds_since(start);
  return result;
}

bool use_color(const Output& output) {
  if (output.color != Color::automatic) return output.color == Color::always;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (set("NO_COLOR")) return false;
  if (set("CLICOLOR_FORCE")) return true;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && !(term != nullptr && std::string(term) == "dumb");
}

bool use_utf8() {
  std::setlocale(LC_CTYPE, "");
  return std::string(nl_langinfo(CODESET)) == "UTF-8";
}

}  // namespace

int run_layer(const LayerRequest& request) {
  const auto start = Clock::now();
  // An illegal tp is refused before anything runs, for all layers.
  for (const LayerSpec& spec : request.specs)
    (void)subject_of(spec, request.all && !request.fault.empty() ? std::string() : request.fault);
  std::vector<LayerResult> results;
  bool passed = true;
  const bool utf8 = use_utf8(), color = use_color(request.output);
  for (const LayerSpec& spec : request.specs) {
    const bool skip_fault = request.all && !request.fault.empty() &&
                            !std::find_if(faults().begin(), faults().end(), [&](const Fault& f) {
                               return f.name == request.fault;
                             })->applies_to(spec.layer);
    if (skip_fault) continue;
    results.push_back(check_layer(request, spec));
    passed = passed && results.back().report.passed();
    if (request.output.json) continue;
    if (request.toy && !request.output.quiet) print_toy(spec);
    std::fputs(text_report(request, results.back(), color, utf8).c_str(), stdout);
    if (&spec != &request.specs.back() && !request.output.quiet) std::fputs("\n", stdout);
    std::fflush(stdout);
  }
  if (request.output.json)
    std::fputs((json_report(request, results, seconds_since(start)) + "\n").c_str(), stdout);
  if (!request.output.html.empty()) write_file(request.output.html, html_report(request, results));
  if (!request.output.junit.empty())
    write_file(request.output.junit, junit_report(request, results));
  if (const char* actions = std::getenv("GITHUB_ACTIONS");
      actions != nullptr && std::string(actions) == "true" && !request.output.json)
    std::fputs(github_annotations(results).c_str(), stdout);
  return passed ? 0 : 1;
}

}  // namespace tpsim::cli
