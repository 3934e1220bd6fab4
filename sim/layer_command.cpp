// SPDX-License-Identifier: MIT
// The layer check: verify, shrink what fails, report.
#include <langinfo.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_spec.hpp>
#include <tpsim/verify/replay.hpp>
#include <tpsim/verify/shrink.hpp>
#include <tpsim/verify/verify.hpp>

#include "sim/commands.hpp"
#include "sim/progress.hpp"
#include "sim/report.hpp"
#include "sim/specs.hpp"
#include "sim/subjects.hpp"

namespace tpsim::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Readings that stream every weight stay off, unless asked for, above this many elements (2 GiB).
constexpr int interactive_log2 = 29;
constexpr Index interactive_elements = Index{1} << interactive_log2;

CheckResult too_large(const char* id, Reading reading) {
  CheckResult check{.id = id, .reading = reading};
  check.message =
      fmt::format("over 2^{} weight elements; all readings run with --reading static,exact,numeric",
                  interactive_log2);
  return check;
}

Index weight_elements(const LayerSpec& spec) {
  Index elements = 0;
  for (const auto& [name, rows, cols] : weight_sizes(spec)) elements += rows * cols;
  return elements;
}

// Does the layer only get the static reading?
bool is_large(const LayerRequest& request, const LayerSpec& spec) {
  return !request.readings_chosen && weight_elements(spec) > interactive_elements;
}

// How engines cut a linear layer of this name, where the layer under check is the other kind.
std::string unusual_style(const LayerRequest& request, const LayerSpec& spec) {
  if (spec.layer != "row" && spec.layer != "column") return {};
  const std::string own = request.module.substr(request.module.rfind('.') + 1);
  const char* usual = own.ends_with("o_proj") || own.ends_with("down_proj") ? "row" : "column";
  if (own.empty() || spec.layer == usual) return {};
  return fmt::format("{} is {} parallel in engines; checked as {}", own, usual, spec.layer);
}

// `spec` is `asked` with what its fault needs.
std::vector<std::string> notes_of(const LayerRequest& request, const LayerSpec& asked,
                                  const LayerSpec& spec) {
  std::vector<std::string> notes;
  if (std::string style = unusual_style(request, spec); !style.empty())
    notes.push_back(std::move(style));
  if (spec.qkv.kv_heads != asked.qkv.kv_heads)
    notes.push_back(
        fmt::format("{} shows with shared kv heads alone; checked with {} kv heads in place of {}",
                    request.fault, spec.qkv.kv_heads, asked.qkv.kv_heads));
  if (spec.bias != asked.bias) notes.push_back(request.fault + " needs a bias; checked with one");
  if (spec.disk != asked.disk)
    notes.push_back(
        fmt::format("{} needs a fused tensor; checked with {} on disk", request.fault, spec.disk));
  return notes;
}

bool show_progress(const Output& output) {
  return isatty(STDERR_FILENO) != 0 && !output.json && !output.quiet;
}

LayerResult check_layer(const LayerRequest& request, const LayerSpec& asked) {
  const auto start = Clock::now();
  const Progress progress(stderr, show_progress(request.output),
                          fmt::format("verifying {} tp {}", asked.layer, asked.tp));
  const LayerSpec spec = spec_for_fault(asked, request.fault);
  LayerResult result;
  result.spec = spec;
  result.notes = notes_of(request, asked, spec);
  const bool large = is_large(request, spec);
  VerifyOptions options{request.statics,
                        request.exact && !large,
                        request.numeric && !large,
                        request.dtype,
                        request.seed,
                        {}};
  result.report = verify(*subject_of(spec, request.fault), options);
  if (large) {
    result.report.checks.push_back(too_large("exact", Reading::exact));
    result.report.checks.push_back(too_large("rounding", Reading::numeric));
  }
  if (!result.report.passed() && request.weights.empty() && !request.toy) {
    // The static reading is the cheapest; the exact one sees the rest.
    const auto fails = [&](const LayerSpec& s) {
      const auto subject = subject_of(s, request.fault);
      VerifyOptions cheap;
      cheap.numeric = cheap.exact = false;
      if (!verify(*subject, cheap).passed()) return true;
      if (weight_elements(s) > 1 << 16) return false;
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
  if (set("CLICOLOR_FORCE") && std::string(std::getenv("CLICOLOR_FORCE")) != "0") return true;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && !(term != nullptr && std::string(term) == "dumb");
}

bool use_utf8() {
  std::setlocale(LC_CTYPE, "");
  return std::string(nl_langinfo(CODESET)) == "UTF-8";
}

// An illegal tp is refused before anything runs; of --layer all, with each layer that refuses it.
void require_legal_layers(const LayerRequest& request) {
  if (!request.all) {
    (void)subject_of(request.specs.front(), request.fault);
    return;
  }
  constexpr int most = 512;
  std::vector<Violation> broken;
  std::vector<int> legal(most);
  std::iota(legal.begin(), legal.end(), 1);
  for (const LayerSpec& spec : request.specs) {
    for (const Violation& v : violations(spec))
      broken.push_back({v.rule, spec.layer + ": " + v.message});
    std::vector<int> both;
    const std::vector<int> own = legal_tp(spec, most);
    std::set_intersection(legal.begin(), legal.end(), own.begin(), own.end(),
                          std::back_inserter(both));
    legal = std::move(both);
  }
  if (!broken.empty())
    throw LayoutError(legal.empty()
                          ? std::string("not all layers can be built")
                          : fmt::format("tp {} cannot split all layers", request.specs[0].tp),
                      std::move(broken), legal.empty() ? "" : "tp can be " + or_list(legal));
  for (const LayerSpec& spec : request.specs) (void)subject_of(spec, request.fault);
}

// Sizes that this machine cannot hold are refused before memory is asked for.
void require_memory(const LayerRequest& request, const LayerSpec& spec) {
  if (is_large(request, spec) || !(request.exact || request.numeric)) return;
  const std::unique_ptr<Subject> subject = subject_of(spec, "");
  double activations = 0, output = 0;
  for (const DeclaredOutput& o : subject->outputs)
    for (const Runs& columns : o.columns) output += static_cast<double>(columns.size());
  activations = static_cast<double>(spec.tokens) *
                (static_cast<double>(subject->input_width) * (spec.tp + 1) + output);
  // 8 bytes a field element or double; float weights, whole and as shards.
  const double bytes =
      8 * activations + (request.numeric ? 8.0 * static_cast<double>(weight_elements(spec)) : 0);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= memory) return;
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  throw UsageError(fmt::format("layer {} needs about {:.0f} GiB for its numbers, this machine has "
                               "{:.0f} GiB",
                               spec.layer, bytes / gib, memory / gib),
                   "use smaller sizes or fewer tokens, or --reading static");
}

}  // namespace

std::vector<std::string> readings_that_find(const Fault& fault) {
  LayerSpec spec;
  spec.layer = fault.layers.front();
  spec.tp = 4, spec.tokens = 2;
  spec.qkv = {4, 2, 8, 2, 0};
  spec.intermediate = 8, spec.parts = gate_up_parts(spec);
  spec.in = 8, spec.out = 8;
  const auto subject = subject_of(spec, fault.name);
  std::vector<std::string> readings;
  for (const Reading reading : {Reading::statics, Reading::exact, Reading::numeric}) {
    VerifyOptions one;
    one.statics = reading == Reading::statics;
    one.exact = reading == Reading::exact;
    one.numeric = reading == Reading::numeric;
    if (!verify(*subject, one).passed()) readings.emplace_back(name(reading));
  }
  return readings;
}

int run_layer(const LayerRequest& request) {
  const auto start = Clock::now();
  require_legal_layers(request);
  for (const LayerSpec& spec : request.specs) require_memory(request, spec);
  for (const std::string& path : {request.output.html, request.output.junit})
    if (!path.empty()) require_writable(path);

  std::vector<LayerResult> results;
  bool passed = true;
  const bool utf8 = use_utf8(), color = use_color(request.output);
  for (const LayerSpec& spec : request.specs) {
    results.push_back(check_layer(request, spec));
    passed = passed && results.back().report.passed();
    if (request.output.json) continue;
    if (request.toy && !request.output.quiet) print_toy(spec, request.fault);
    std::fputs(text_report(request, results.back(), color, utf8).c_str(), stdout);
    if (&spec != &request.specs.back() && !request.output.quiet) std::fputs("\n", stdout);
    std::fflush(stdout);
  }
  // Files first: where one cannot be written, the JSON on stdout is the error alone.
  if (!request.output.html.empty()) write_file(request.output.html, html_report(request, results));
  if (!request.output.junit.empty())
    write_file(request.output.junit, junit_report(request, results));
  if (request.output.json)
    std::fputs((json_report(request, results, seconds_since(start)) + "\n").c_str(), stdout);
  if (const char* actions = std::getenv("GITHUB_ACTIONS");
      actions != nullptr && std::string(actions) == "true" && !request.output.json)
    std::fputs(github_annotations(results).c_str(), stdout);
  return passed ? 0 : 1;
}

}  // namespace tpsim::cli
