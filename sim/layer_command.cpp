// SPDX-License-Identifier: MIT
// The layer check: verify, shrink what fails, report.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_spec.hpp>
#include <tpsim/verify/replay.hpp>
#include <tpsim/verify/shrink.hpp>
#include <tpsim/verify/verify.hpp>

#include "sim/commands.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/job.hpp"
#include "sim/memory.hpp"
#include "sim/progress.hpp"
#include "sim/report.hpp"
#include "sim/specs.hpp"
#include "sim/subjects.hpp"
#include "sim/terminal.hpp"

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

// How the plan cuts the linear layer, where the layer under check is the other kind.
std::string unusual_style(const LayerRequest& request, const LayerSpec& spec) {
  if (spec.layer != "row" && spec.layer != "column") return {};
  if (request.planned.empty() || spec.layer == request.planned) return {};
  return fmt::format("{} is {} parallel in engines; checked as {}",
                     request.module.substr(request.module.rfind('.') + 1), request.planned,
                     spec.layer);
}

// What a fault has changed of a decoder's choices.
void note_decoder_changes(const LayerRequest& request, const LayerSpec& asked,
                          const LayerSpec& spec, std::vector<std::string>& notes) {
  const AttentionShape &have = spec.decoder.attention, &was = asked.decoder.attention;
  const auto needs = [&](bool changed, const std::string& what) {
    if (changed)
      notes.push_back(fmt::format("{} needs {}; checked with that", request.fault, what));
  };
  needs(have.qk_norm != was.qk_norm, have.qk_norm == QkNorm::none ? "q and k that are not normed"
                                     : have.qk_norm == QkNorm::per_head
                                         ? "a norm of each q and k head"
                                         : "a norm of all heads together");
  needs(have.window != was.window,
        have.window ? fmt::format("a window of {}", *have.window) : "no window");
  needs(have.alibi != was.alibi, have.alibi ? "alibi" : "no alibi");
  needs(have.sinks != was.sinks, have.sinks ? "sinks" : "no sinks");
  needs(have.rope != was.rope,
        have.rope ? fmt::format("{} columns that turn", have.rope->rotary_dim) : "no rope");
  needs(have.qkv_bias != was.qkv_bias || have.o_bias != was.o_bias ||
            spec.decoder.mlp_bias != asked.decoder.mlp_bias,
        "other biases");
  needs(spec.chunk != asked.chunk,
        spec.chunk == 0 ? "one prefill" : fmt::format("steps of {} tokens", spec.chunk));
  needs(spec.tokens != asked.tokens, fmt::format("{} tokens", spec.tokens));
  needs(spec.decoder.parallel_residual != asked.decoder.parallel_residual,
        spec.decoder.parallel_residual ? "a parallel residual" : "a sequential residual");
  needs(spec.decoder.gated != asked.decoder.gated,
        spec.decoder.gated ? "a gated MLP" : "an MLP without gate");
  needs(spec.decoder.norm != asked.decoder.norm, "another kind of norm");
  needs(spec.decoder.activation != asked.decoder.activation, "another activation");
}

// `spec` is `asked` with what its fault needs.
std::vector<std::string> notes_of(const LayerRequest& request, const LayerSpec& asked,
                                  const LayerSpec& spec) {
  std::vector<std::string> notes;
  if (std::string style = unusual_style(request, spec); !style.empty())
    notes.push_back(std::move(style));
  const auto other_size = [&](const char* what, Index have, Index wanted, const char* why) {
    if (have != wanted)
      notes.push_back(fmt::format("{} {}; checked with {} {} in place of {}", request.fault, why,
                                  have, what, wanted));
  };
  const bool shares = spec.qkv.kv_heads < spec.tp && spec.tp <= asked.qkv.kv_heads;
  other_size("kv heads", spec.qkv.kv_heads, asked.qkv.kv_heads,
             shares ? "shows with shared kv heads alone" : "shows with other kv heads");
  other_size("rows a head", spec.qkv.head_dim, asked.qkv.head_dim, "shows with other heads");
  other_size("hidden columns", spec.qkv.hidden, asked.qkv.hidden, "shows at another width");
  other_size("input columns", spec.in, asked.in, "shows at another width");
  other_size("output rows", spec.out, asked.out, "shows at another height");
  other_size("intermediate rows", spec.intermediate, asked.intermediate, "shows at another height");
  other_size("vocabulary rows", spec.vocab, asked.vocab, "shows at another size");
  if (spec.vocab_cut != asked.vocab_cut)
    notes.push_back(fmt::format("{} needs a padded vocabulary; checked with {}", request.fault,
                                spec.vocab_cut));
  if (spec.tied != asked.tied)
    notes.push_back(request.fault + " needs a tied weight; checked with one");
  for (std::size_t k = 0; k < spec.parts.size(); ++k)
    other_size((spec.parts[k].name + " rows").c_str(), spec.parts[k].rows, asked.parts[k].rows,
               "shows at another height");
  if (spec.bias != asked.bias) notes.push_back(request.fault + " needs a bias; checked with one");
  if (spec.gather_output != asked.gather_output)
    notes.push_back(request.fault + " needs a gathered output; checked with one");
  if (spec.input_is_parallel != asked.input_is_parallel)
    notes.push_back(request.fault + " needs the whole input on every rank; checked with that");
  if (spec.disk != asked.disk)
    notes.push_back(spec.disk.empty()
                        ? request.fault + " needs a tensor for each part; checked with those"
                        : fmt::format("{} needs a fused tensor; checked with {} on disk",
                                      request.fault, spec.disk));
  note_decoder_changes(request, asked, spec, notes);
  return notes;
}

// Does a smaller layer fail as well? The static reading is the cheapest; the others see the rest.
bool fails(const LayerRequest& request, const LayerSpec& spec, VerifyOptions options) {
  try {
    const auto subject = subject_of(spec, request.fault);
    VerifyOptions one = options;
    one.exact = one.numeric = false;
    if (!verify(*subject, one).passed()) return true;
    if (weight_elements(spec) > 1 << 16) return false;
    one.statics = false;
    one.exact = options.exact;
    if (one.exact && !verify(*subject, one).passed()) return true;
    one.exact = false;
    one.numeric = options.numeric;
    return one.numeric && !verify(*subject, one).passed();
  } catch (const LayoutError&) {
    return false;  // a layout on disk that has numbers in it fits no other size
  }
}

LayerResult check_layer(const LayerRequest& request, const LayerSpec& asked) {
  const auto start = Clock::now();
  const Progress progress(stderr, show_progress(request.output),
                          fmt::format("verifying {} tp {}", asked.layer, asked.tp));
  const LayerSpec spec = spec_for_fault(asked, request.fault);
  LayerResult result;
  result.spec = spec;
  result.notes = notes_of(request, asked, spec);
  if (std::string note = note_on_ranks(request); !note.empty())
    result.notes.push_back(std::move(note));
  const bool large = is_large(request, spec);
  VerifyOptions options{request.statics,
                        request.exact && !large,
                        request.numeric && !large,
                        request.dtype,
                        request.seed,
                        {},
                        request.all_reduce,
                        Weakening::none,
                        request.world};
  const std::unique_ptr<NumericEngine> engine = engine_of(request.backend, request.tf32);
  options.engine = engine.get();
  result.report = verify(*subject_of(spec, request.fault), options);
  if (large) {
    result.report.checks.push_back(too_large("exact", Reading::exact));
    result.report.checks.push_back(too_large("rounding", Reading::numeric));
  }
  options.world = nullptr;  // the search for a smaller case is this process's own
  if (request.reports() && !result.report.passed() && request.weights.empty() && !request.toy) {
    const Shrunk smallest =
        shrink(spec, [&](const LayerSpec& s) { return fails(request, s, options); });
    result.smallest_spec = with_parts_of_fault(smallest.spec, request.fault);
    result.smallest = replay_command(result.smallest_spec, request.fault, request.seed);
    const auto add = [&](const char* option, std::string_view value) {
      result.smallest.insert(result.smallest.end(), {option, std::string(value)});
    };
    if (request.dtype != DType::f32) add("--dtype", name(request.dtype));
    if (request.all_reduce != ReduceOrder::rank) add("--all-reduce", name(request.all_reduce));
    if (request.backend != "eigen") add("--backend", request.backend);
    if (request.tf32) result.smallest.emplace_back("--tf32");
    result.tests = smallest.tests;
    result.shrinks = smallest.shrinks;
  }
  result.elapsed_s = seconds_since(start);
  return result;
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

void require_memory_for(const LayerRequest& request, const LayerSpec& spec) {
  if (is_large(request, spec) || !(request.exact || request.numeric)) return;
  const bool attends = spec.layer == "attention" || spec.layer == "decoder";
  const double inside =
      attends ? columns_inside(spec.qkv, spec.layer == "decoder" ? spec.intermediate : 0) : 0;
  double bytes = activation_bytes(*subject_of(spec, ""), spec.tokens, spec.tp, inside);
  if (request.numeric && !request.weights.empty())
    bytes += bytes_of_kept_weight * static_cast<double>(weight_elements(spec));
  require_memory(bytes, fmt::format("layer {} needs", spec.layer), "for its numbers",
                 "use smaller sizes or fewer tokens, or --reading static");
}

}  // namespace

std::vector<std::string> readings_that_find(const Fault& fault) {
  LayerSpec spec;
  spec.layer = fault.layers.front();
  spec.tp = 4, spec.tokens = 2;
  spec.qkv = {4, 2, 8, 2, 0};
  spec.intermediate = 8, spec.parts = gate_up(spec.intermediate);
  spec.in = 8, spec.out = 8, spec.vocab = 12;
  if (is_decoder_layer(spec.layer)) {
    spec.tokens = 6;
    spec.decoder.attention.rope.emplace().rotary_dim = spec.qkv.head_dim;
  }
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
  for (const LayerSpec& spec : request.specs) require_memory_for(request, spec);
  for (const std::string& path : {request.output.html, request.output.junit})
    if (!path.empty() && request.reports()) require_writable(path);

  std::vector<LayerResult> results;
  bool passed = true;
  const bool utf8 = use_utf8(), color = use_color(request.output);
  for (const LayerSpec& spec : request.specs) {
    results.push_back(check_layer(request, spec));
    passed = passed && results.back().report.passed();
    if (!request.reports() || request.output.json) continue;
    if (request.toy && !request.output.quiet) print_toy(spec, request.fault);
    std::fputs(text_report(request, results.back(), color, utf8).c_str(), stdout);
    if (&spec != &request.specs.back() && !request.output.quiet) std::fputs("\n", stdout);
    std::fflush(stdout);
  }
  if (!request.reports()) return 0;  // the exit status is the root's
  // Files first: where one cannot be written, the JSON on stdout is the error alone.
  if (!request.output.html.empty()) write_file(request.output.html, html_report(request, results));
  if (!request.output.junit.empty())
    write_file(request.output.junit, junit_report(request, results));
  if (request.output.json)
    std::fputs((json_report(request, results, seconds_since(start)) + "\n").c_str(), stdout);
  annotate(request.output, results);
  return passed ? 0 : 1;
}

}  // namespace tpsim::cli
