// SPDX-License-Identifier: MIT
// `tpsim check` for terminals: one row for each tp, then what is wrong.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tpsim/version.hpp>

#include "sim/check_command.hpp"
#include "sim/check_numeric.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/job.hpp"
#include "sim/terminal.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

// "1, 2, 4"
std::string list_of(const std::vector<int>& tps) { return fmt::format("{}", fmt::join(tps, ", ")); }

std::string sizes_text(const CheckedModel& m) {
  const DecoderShape& layer = m.model.kinds.front().shape;
  const QkvShape& q = layer.attention.qkv;
  std::string out = fmt::format(
      "{}: hidden {}, intermediate {}, layers {}, heads {}, kv heads {}, head dim {}, vocab {}{}",
      m.model.architecture, q.hidden, layer.intermediate, m.model.kind_of_layer.size(), q.heads,
      q.kv_heads, q.head_dim, m.model.shape.vocab.vocab, m.model.shape.tied ? ", tied" : "");
  for (std::size_t k = 0; k < m.model.kinds.size(); ++k) {
    const auto& window = m.model.kinds[k].shape.attention.window;
    if (m.model.kinds.size() > 1)
      out += fmt::format("; {} {}", m.layers_of(k),
                         window ? fmt::format("see {} positions", *window) : "see all positions");
  }
  return out;
}

std::string size(Index bytes) { return binary_size(static_cast<double>(bytes)); }

std::string row(const CheckRun& run, const Paint& paint) {
  std::string out = fmt::format("{:>5}  ", run.tp);
  for (const Reading r : {Reading::statics, Reading::exact, Reading::numeric}) {
    const Outcome o = run.outcome(r);
    const std::string word = o == Outcome::fail ? "FAIL" : o == Outcome::pass ? "pass" : "-";
    out += (o == Outcome::skip ? word : paint.as(o, word)) + std::string(8 - word.size(), ' ');
  }
  if (run.cost) {
    const ModelCost& c = *run.cost;
    Index count = 0;
    for (const ModelCollective& one : c.collectives) count += one.count;
    const auto most = [](const std::vector<Index>& all) {
      return *std::max_element(all.begin(), all.end());
    };
    out += fmt::format("{:>11}{:>12}{:>13}{:>11}", size(most(c.weight_bytes)),
                       size(most(c.kv_bytes_per_token)), count, size(most(c.wire_bytes_per_token)));
  }
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
}

// The chance that a fault was missed in all runs and stages together, as a power of two.
std::optional<double> chance(const CheckOutcome& result) {
  double sum = 0;
  bool any = false;
  for (const CheckRun& run : result.runs)
    for (const StageResult& s : run.stages)
      for (const CheckResult& c : s.checks)
        if (c.log2_miss) sum += std::exp2(*c.log2_miss), any = true;
  return any && sum > 0 ? std::optional(std::log2(sum)) : std::nullopt;
}

std::optional<std::pair<double, std::string>> largest(const CheckOutcome& result) {
  std::optional<std::pair<double, std::string>> out;
  for (const CheckRun& run : result.runs)
    for (const StageResult& s : run.stages)
      for (const CheckResult& c : s.checks)
        if (c.largest_ratio && (!out || *c.largest_ratio > out->first))
          out = {*c.largest_ratio, fmt::format("{}, {}", s.stage, c.largest_at)};
  return out;
}

std::string figures_text(const CheckRequest& request, const CheckedModel& model,
                         const CheckOutcome& result) {
  std::string out;
  const bool cost = std::any_of(result.runs.begin(), result.runs.end(),
                                [](const CheckRun& r) { return r.cost.has_value(); });
  if (cost)
    out += line("      ", fmt::format("weights of the fullest rank in {}; kv cache and bytes sent "
                                      "by a rank for one token; collectives of one forward",
                                      name(model.dtype())));
  if (const auto log2 = chance(result))
    out += line("      ", fmt::format("exact at {}: equal to full() in GF(2^61-1); all in all "
                                      "misses a fault < 2^{:.0f}",
                                      request.full ? "reduced and full size" : "reduced size",
                                      std::ceil(*log2)));
  if (const auto most = largest(result))
    out +=
        line("      ", fmt::format("numeric in {}: largest difference {:.2g} of its bound ({})",
                                   name(numeric_dtype(request, model)), most->first, most->second));
  return out;
}

std::string findings_of(const CheckResult& c, bool verbose) {
  std::string out;
  const std::string head = fmt::format("  {:<11} ", c.id);
  for (std::size_t i = 0; i < c.findings.size() && (verbose || i == 0); ++i) {
    const Finding& f = c.findings[i];
    out += line(i == 0 ? head : std::string(head.size(), ' '), f.message);
    if (!f.cause.empty()) out += line("    cause     ", f.cause);
    if (!f.repair.empty()) out += line("    repair    ", f.repair);
  }
  if (!verbose && c.findings.size() > 1)
    out += fmt::format("{}and {} more (--verbose lists all)\n", std::string(head.size(), ' '),
                       c.findings.size() - 1);
  return out;
}

std::string failure(const CheckRun& run, bool verbose) {
  if (!run.first) return {};
  const Divergence& d = *run.first;
  std::string out = "\n" + line("", fmt::format("tp {} differs first at {}", run.tp, place_of(d)));
  for (const StageResult& s : run.stages) {
    if (s.stage != d.stage && !verbose) continue;
    bool titled = s.stage == d.stage;
    for (const CheckResult& c : s.checks) {
      if (c.result != Outcome::fail) continue;
      if (!titled) out += "  also " + s.stage + "\n";
      titled = true;
      out += findings_of(c, verbose);
    }
  }
  std::vector<std::string> others;
  for (const StageResult& s : run.stages)
    if (s.stage != d.stage && std::any_of(s.checks.begin(), s.checks.end(),
                                          [](const auto& c) { return c.result == Outcome::fail; }))
      others.push_back(s.stage);
  if (!others.empty() && !verbose)
    out += line("  also failed: ", fmt::format("{} (--verbose says why)", fmt::join(others, ", ")));
  return out;
}

std::string all_checks(const CheckRun& run, const Paint& paint) {
  std::string out = fmt::format("\ntp {}\n", run.tp);
  for (const StageResult& s : run.stages) {
    out += fmt::format("  {}\n", s.stage);
    for (const CheckResult& c : s.checks) {
      const std::string word(c.result == Outcome::fail ? "FAIL" : name(c.result));
      std::string row =
          line(fmt::format("    {:<5} {:<11} {:<8}", word, c.id, name(c.reading)), c.message);
      out += row.replace(4, word.size(), paint.as(c.result, word));  // after the lines are broken
    }
  }
  return out;
}

std::string illegal_text(const CheckOutcome& result, bool verbose) {
  std::string out;
  constexpr int shown_up_to = 8;
  std::vector<int> more;
  for (const CheckRun& run : result.runs) {
    if (run.broken.empty()) continue;
    if (run.tp > shown_up_to && !verbose) {
      more.push_back(run.tp);
      continue;
    }
    out += fmt::format("\ntp {} is not possible\n", run.tp);
    for (const Violation& v : run.broken) out += line("  " + pad(v.rule, 6) + "  ", v.message);
  }
  if (!more.empty())
    out += "\n" + line("", fmt::format("not possible either: tp {}\n'tpsim plan' and --verbose "
                                       "tell why",
                                       list_of(more)));
  return out;
}

std::string verdict(const CheckOutcome& result) {
  std::vector<int> good, bad, none;
  for (const CheckRun& run : result.runs) {
    if (!run.broken.empty()) continue;
    const Outcome o = run.outcome();
    (o == Outcome::fail ? bad : o == Outcome::pass ? good : none).push_back(run.tp);
  }
  std::string out;
  if (result.names.result == Outcome::fail) out += "the weights contradict the plan; ";
  if (!bad.empty()) out += fmt::format("tp {} failed", list_of(bad));
  if (!good.empty()) out += fmt::format("{}tp {} passed", bad.empty() ? "" : ", ", list_of(good));
  if (!none.empty())
    out += fmt::format("{}nothing to compare at tp {}", bad.empty() && good.empty() ? "" : ", ",
                       list_of(none));
  if (bad.empty() && good.empty() && none.empty()) out += "no tp is possible";
  return out + "\n";
}

}  // namespace

std::string place_of(const Divergence& d) {
  std::string out = d.stage;
  if (!d.part.empty()) out += " " + d.part;
  if (d.rank >= 0) out += fmt::format(", rank {}", d.rank);
  if (d.head) out += fmt::format(", head {}", *d.head);
  if (d.row) out += fmt::format(", row {} of {}", *d.row, d.tensor);
  if (d.reduced && d.row) out += " at the reduced size";
  return out;
}

std::vector<std::string> notes_of(const CheckRequest& request, const CheckedModel& model,
                                  const CheckOutcome& result) {
  std::vector<std::string> notes = model.model.notes;
  if (!model.model.dtype) notes.emplace_back("the config gives no dtype; bytes are those of bf16");
  if (request.numeric && request.readings_chosen && !model.files)
    notes.emplace_back("no weights here: the numeric reading makes its own, at the reduced size");
  const bool ran = std::any_of(result.runs.begin(), result.runs.end(),
                               [](const CheckRun& r) { return r.broken.empty(); });
  if (!request.fault.empty() && result.passed() && ran)
    notes.push_back(fmt::format("the fault {} changes nothing in this model", request.fault));
  if (model.files && request.numeric && result.names.result == Outcome::fail)
    notes.emplace_back("no numeric reading of weights that contradict the plan");
  if (std::string note = note_on_ranks(request); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

std::string check_text(const CheckRequest& request, const CheckedModel& model,
                       const CheckOutcome& result, bool color) {
  const Paint paint{color};
  if (request.output.quiet) return verdict(result);
  std::string backend;
  for (const std::string& text : backend_texts(request.backend, request.tf32))
    backend += "  " + text;
  std::string out =
      line("", fmt::format("tpsim {}  check  model {}{}{}  seed {}{}", TPSIM_VERSION, model.name,
                           request.fault.empty() ? "" : "  fault " + request.fault,
                           request.world == nullptr ? "" : "  comm " + request.comm, request.seed,
                           backend));
  out += line("", sizes_text(model));
  for (const std::string& note : notes_of(request, model, result)) out += line("note: ", note);
  out += "\n" + line("names  ", result.names.message);
  if (result.names.result == Outcome::fail)
    for (const Finding& f : result.names.findings)
      out += line("       ", f.message + (f.cause.empty() ? "" : "; " + f.cause));

  const bool any = std::any_of(result.runs.begin(), result.runs.end(),
                               [](const CheckRun& r) { return r.broken.empty(); });
  if (any) {
    out += fmt::format("\n{:>5}  {:<8}{:<8}{:<8}", "tp", "static", "exact", "numeric");
    out += request.statics ? fmt::format("{:>11}{:>12}{:>13}{:>11}\n", "weights", "kv cache",
                                         "collectives", "wire")
                           : "\n";
    for (const CheckRun& run : result.runs)
      if (run.broken.empty()) out += row(run, paint);
    out += figures_text(request, model, result);
  }
  for (const CheckRun& run : result.runs) out += failure(run, request.output.verbose);
  if (request.output.verbose)
    for (const CheckRun& run : result.runs)
      if (run.broken.empty()) out += all_checks(run, paint);
  out += illegal_text(result, request.output.verbose);
  std::string last = verdict(result);
  last.pop_back();  // the newline stays plain
  return out + "\n" + (result.passed() ? paint.pass(last) : paint.fail(last)) + "\n";
}

}  // namespace tpsim::cli
