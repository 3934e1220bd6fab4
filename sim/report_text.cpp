// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include <tpsim/verify/replay.hpp>
#include <tpsim/version.hpp>

#include "sim/cuda_numeric.hpp"
#include "sim/report.hpp"
#include "sim/terminal.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

std::string decimal_flop(double flop) {
  const char* const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  int unit = 0;
  while (flop >= 1000 && unit < 5) flop /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f} FLOP", flop) : fmt::format("{:.3g} {}", flop, units[unit]);
}

std::string how_cut(const TensorReport& t) {
  if (!t.tp_dim) return "whole on every rank";
  if (*t.tp_dim == 1) return "columns cut";
  for (const Shard& s : t.shards)
    for (const ShardPiece& p : s.pieces)
      if (p.label.find(" head") != std::string::npos) return "rows cut by head";
  return t.shards.empty() || t.shards[0].pieces.empty() || t.shards[0].pieces[0].part.empty()
             ? "rows cut"
             : "rows of each part cut";
}

// Sources of a parameter: "q_proj.weight, k_proj.weight".
std::string sources(const TensorReport& t) {
  std::vector<std::string> seen;
  for (const Shard& s : t.shards)
    for (const ShardPiece& p : s.pieces)
      if (!p.source.empty() && std::find(seen.begin(), seen.end(), p.source) == seen.end())
        seen.push_back(p.source);
  return fmt::format("{}", fmt::join(seen, ", "));
}

// The rows of checks: "  FAIL  collectives " is 20 columns wide, the text 51, the reading 9.
constexpr std::size_t indent = 20, text_width = 51;

// `text` after the id of a check; the reading stands at the end of its last line.
std::string beside(const std::string& text, const std::string& reading) {
  std::string out;
  const std::vector<std::string> lines = lines_of(text, text_width);
  for (const std::string& line : lines)
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) +
           (&line == &lines.back() ? pad(line, text_width) : line);
  if (width_of(lines.back()) > text_width) out += "\n" + std::string(indent + text_width, ' ');
  return out + "  " + reading + "\n";
}

std::string message_of(const CheckResult& c) {
  if (c.result != Outcome::pass || !c.log2_miss) return c.message;
  return fmt::format("{}; misses a fault < 2^{}", c.message,
                     -static_cast<int>(std::min(1000.0, std::floor(-*c.log2_miss))));
}

// One check: its verdict, then the message, or the findings.
std::string check_rows(const CheckResult& c, bool verbose, const std::string& verdict) {
  std::string out = fmt::format("  {} {:<11} ", verdict, c.id);
  if (c.findings.empty()) {
    out += beside(message_of(c), std::string(name(c.reading)));
  } else {
    out += beside(c.findings.front().message, std::string(name(c.reading)));
    const std::string blanks(indent, ' ');
    for (std::size_t i = 1; verbose && i < c.findings.size(); ++i)
      out += blanks + wrapped(c.findings[i].message, indent, indent) + "\n";
    if (!verbose && c.findings.size() > 1)
      out += fmt::format("{}and {} more (--verbose lists all)\n", blanks, c.findings.size() - 1);
  }
  if (verbose && c.largest_ratio)
    out += fmt::format(
        "{0:{1}}{2}\n", "", indent,
        wrapped(fmt::format("largest at {}; sees any change above {:.2g} of the "
                            "output's size",
                            c.largest_at, (1 + *c.largest_ratio) * c.detection_floor.value_or(0)),
                indent, indent));
  return out;
}

// What was asked for; a path, a module or a fault has a line of its own.
std::string title(const LayerRequest& request, const LayerResult& result) {
  std::vector<std::string> fields{fmt::format("tpsim {}", TPSIM_VERSION),
                                  "layer " + result.report.subject,
                                  fmt::format("tp {}", result.report.tp)};
  if (request.toy)
    fields.emplace_back("toy");
  else if (request.weights.empty())
    fields.push_back("model " + request.model);
  fields.push_back(fmt::format("tokens {}", result.spec.tokens));
  fields.push_back(fmt::format("dtype {}", name(request.dtype)));
  if (request.all_reduce != ReduceOrder::rank)
    fields.push_back(fmt::format("all-reduce {}", name(request.all_reduce)));
  if (request.world != nullptr) fields.push_back("comm " + request.comm);
  for (const std::string& text : backend_texts(request.backend, request.tf32))
    fields.push_back(text);
  fields.push_back(fmt::format("seed {}", request.seed));
  std::string out, line;
  for (const std::string& field : fields) {
    const bool fits = width_of(line) + 2 + width_of(field) <= 80;
    if (!fits) out += line + "\n";
    line = line.empty() || !fits ? field : line + "  " + field;
  }
  out += line;
  if (!request.weights.empty())
    out += fmt::format("\nweights {}\nmodule {}", request.weights, request.module);
  if (!request.fault.empty()) out += "\nfault " + request.fault;
  return out + "\n\n";
}

std::string tensor_rows(const TensorReport& t, bool utf8, bool verbose) {
  if (t.full_shape.rank() == 1 && !verbose)
    return fmt::format("{} {}, {}\n\n", t.name, t.full_shape.str(),
                       !t.tp_dim                    ? "whole on every rank"
                       : t.name.ends_with("weight") ? "cut by head"
                                                    : "cut like the rows of its weight");
  return fmt::format(
      "{} {}, {}\n{}      {}\n\n", t.name, t.full_shape.str(), how_cut(t),
      shard_table(t, utf8, verbose),
      wrapped(fmt::format("{} of {}", t.tp_dim == 1 ? "columns" : "rows", sources(t)), 6, 6));
}

// Equal ones, of several layers or steps, are told once.
std::string collective_rows(const Report& report) {
  std::vector<std::pair<std::string, int>> told;
  for (const CollectiveReport& c : report.collectives) {
    const std::string text =
        fmt::format("{} {} {} in group {} at {}", c.op, c.shape.str(), c.dtype, c.group, c.at);
    const auto it = std::find_if(told.begin(), told.end(),
                                 [&](const auto& earlier) { return earlier.first == text; });
    if (it == told.end())
      told.emplace_back(text, 1);
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [text, times] : told)
    out += wrapped(times == 1 ? text : fmt::format("{} times {}", times, text), 0, 10) + "\n";
  return out;
}

std::string cost_rows(const Report& report) {
  const Cost& cost = report.cost;
  std::string out;
  if (!cost.weight_bytes.empty()) {
    out = fmt::format("per rank: weights {} of {}, {} of {}, wire {}",
                      binary_size(static_cast<double>(cost.weight_bytes[0])),
                      binary_size(static_cast<double>(cost.full_weight_bytes)),
                      decimal_flop(static_cast<double>(cost.flop[0])),
                      decimal_flop(static_cast<double>(cost.full_flop)),
                      binary_size(static_cast<double>(cost.wire_bytes[0])));
    out = wrapped(out, 0, 10) + "\n";
    if (cost.kv_bytes_per_token[0] > 0)
      out += fmt::format("          kv cache {} a token\n",
                         binary_size(static_cast<double>(cost.kv_bytes_per_token[0])));
  }
  return out + collective_rows(report);
}

// The checks that apply to every layer, `integer` to all that have a linear part: without one, less
// was verified than was asked for.
bool missed_when_skipped(const Report& report, const CheckResult& c) {
  return c.id == "exact" || (c.id == "integer" && report.subject != "norm") || c.id == "rounding";
}

std::string verdict_of(const LayerResult& result) {
  std::size_t passed = 0, failed = 0, skipped = 0;
  for (const CheckResult& c : result.report.checks) {
    passed += c.result == Outcome::pass ? 1 : 0;
    failed += c.result == Outcome::fail ? 1 : 0;
    skipped += c.result == Outcome::skip && missed_when_skipped(result.report, c) ? 1 : 0;
  }
  std::string out = failed > 0 ? fmt::format("{} of {} checks failed", failed, failed + passed)
                               : fmt::format("{} check{} passed", passed, passed == 1 ? "" : "s");
  if (skipped > 0) out += fmt::format(", {} skipped", skipped);
  return out + fmt::format(" in {:.1f} s", result.elapsed_s);
}

// Of all findings with a cause, the one whose check is nearest to where the fault was made: a
// misplaced row also leaves counts, states and sums wrong.
const Finding* explained(const Report& report) {
  constexpr std::array<std::string_view, 6> order{"order", "heads",       "partners",
                                                  "state", "collectives", "cover"};
  const Finding* best = nullptr;
  std::size_t best_place = order.size() + 1;
  for (const CheckResult& c : report.checks) {
    const auto place =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), c.id) - order.begin());
    if (place >= best_place) continue;
    for (const Finding& f : c.findings)
      if (!f.cause.empty()) {
        best = &f, best_place = place;
        break;
      }
  }
  return best;
}

}  // namespace

std::string unseen_fault(const LayerRequest& request, const Report& report) {
  if (request.fault.empty() || !report.passed()) return {};
  for (const CheckResult& c : report.checks)
    if (c.id == "exact" && c.result == Outcome::pass)
      return fmt::format("the fault {} changes nothing at this shape", request.fault);
  return fmt::format("the readings that ran do not see the fault {}", request.fault);
}

std::string text_report(const LayerRequest& request, const LayerResult& result, bool color,
                        bool utf8) {
  const Report& report = result.report;
  const bool verbose = request.output.verbose;
  const Paint paint{color};
  const bool failed = !report.passed();
  const std::string verdict = verdict_of(result), unseen = unseen_fault(request, report);
  if (request.output.quiet)
    return fmt::format("{} tp {}: {}{}{}\n", report.subject, report.tp, verdict,
                       unseen.empty() ? "" : "; ", unseen);

  std::string out = title(request, result);
  for (const std::string& note : result.notes) out += wrapped("note: " + note, 0, 6) + "\n";
  if (!result.notes.empty()) out += "\n";
  for (const TensorReport& t : report.tensors) out += tensor_rows(t, utf8, verbose);
  const CheckResult* first_failed = nullptr;
  for (const CheckResult& c : report.checks) {
    if (c.result == Outcome::skip && !verbose && !missed_when_skipped(report, c)) continue;
    out += check_rows(c, verbose,
                      paint.as(c.result, c.result == Outcome::pass   ? "ok   "
                                         : c.result == Outcome::fail ? "FAIL "
                                                                     : "skip "));
    if (c.result == Outcome::fail && first_failed == nullptr) first_failed = &c;
  }
  if (const Finding* finding = explained(report)) {
    out += wrapped("cause: " + finding->cause, 0, 7) + "\n";
    if (!finding->repair.empty()) out += wrapped("repair: " + finding->repair, 0, 8) + "\n";
  }
  out += "\n" + cost_rows(report) + (failed ? paint.fail(verdict) : paint.pass(verdict)) + "\n";
  if (!unseen.empty()) out += wrapped(unseen, 0, 0) + "\n";
  if (!result.smallest.empty())
    out += fmt::format("\nsmallest failing case ({} tests, {} shrinks)\n    {}\n", result.tests,
                       result.shrinks, shell_line(result.smallest));
  if (first_failed != nullptr) out += "read more\n    tpsim explain " + first_failed->id + "\n";
  return out;
}

}  // namespace tpsim::cli
