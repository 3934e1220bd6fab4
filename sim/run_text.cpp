// SPDX-License-Identifier: MIT
// `tpsim run` for terminals, and as a page.
#include <algorithm>

#include <fmt/format.h>

#include <tpsim/version.hpp>

#include "sim/cuda_numeric.hpp"
#include "sim/run_command.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

std::string ids_text(const std::vector<Index>& ids, bool all) {
  constexpr std::size_t shown = 16;
  const std::size_t n = all ? ids.size() : std::min(ids.size(), shown);
  std::string out =
      fmt::format("{}", fmt::join(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), " "));
  if (n < ids.size()) out += fmt::format(" ... ({} tokens)", ids.size());
  return out;
}

std::string title(const RunRequest& request, const RunResult& r) {
  const DecoderShape& layer = r.shape.layers.front();
  const QkvShape& q = layer.attention.qkv;
  std::string how =
      fmt::format("tpsim {}  run  tp {}  dtype {}", TPSIM_VERSION, request.tp, name(request.dtype));
  if (request.all_reduce != ReduceOrder::rank)
    how += fmt::format("  all-reduce {}", name(request.all_reduce));
  if (request.world != nullptr) how += "  comm " + request.comm;
  for (const std::string& text : backend_texts(request.backend, request.tf32)) how += "  " + text;
  if (request.tokens.empty()) how += fmt::format("  seed {}", request.seed);
  std::string out = how + "\n" + line("model ", request.model) + line("plan ", r.plan);
  out +=
      line("", fmt::format("hidden {}, intermediate {}, layers {}, heads {}, kv heads {}, head "
                           "dim {}, vocab {}{}",
                           q.hidden, layer.intermediate, r.shape.layers.size(), q.heads, q.kv_heads,
                           q.head_dim, r.shape.vocab.vocab, r.shape.tied ? ", tied" : ""));
  for (const std::string& note : r.notes) out += line("note: ", note);
  return out;
}

std::string step_rows(const RunResult& r, bool verbose) {
  std::string out = fmt::format("{:<10}{:>7}  {:<30}{:>9}  {}\n", "step", "tokens", "collectives",
                                "sent", "largest logits");
  for (std::size_t s = 0; s < r.steps.size(); ++s) {
    const RunStep& step = r.steps[s];
    std::string calls, top;
    for (const auto& [op, n] : step.collectives)
      calls += fmt::format("{}{} {}", calls.empty() ? "" : ", ", n, op);
    for (std::size_t i = 0; i < step.top.size() && (verbose || i < 2); ++i)
      top += fmt::format("{}{} ({:.4g})", top.empty() ? "" : " ", step.top[i].first,
                         step.top[i].second);
    out += fmt::format("{:<10}{:>7}  {:<30}{:>9}  {}\n",
                       s == 0 ? std::string("prefill") : fmt::format("decode {}", s), step.tokens,
                       calls.empty() ? "none" : calls,
                       binary_size(static_cast<double>(step.wire_bytes)), top);
  }
  return out;
}

std::string stage_rows(const RunResult& r, bool verbose) {
  constexpr std::size_t shown = 12;
  std::string out = fmt::format("{:<15}{:>11}{:>11}  {}\n", "stage", "difference", "of bound",
                                "where that is largest");
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < r.stages.size(); ++i) {
    const RunStage& s = r.stages[i];
    const bool middle = i >= shown && i + 2 < r.stages.size();
    if (middle && !verbose && s.passed()) {
      ++left_out;
      continue;
    }
    out += fmt::format("{:<15}{:>11.2g}{:>11}  {}, rank {} token {} column {}{}\n", s.name,
                       s.largest_difference,
                       s.largest_ratio ? fmt::format("{:.2g}", *s.largest_ratio) : "no bound",
                       s.at.tensor, s.at.rank, s.at.token, s.at.column, s.passed() ? "" : "  FAIL");
  }
  if (left_out > 0) out += fmt::format("{} stages more (--verbose lists all)\n", left_out);
  return out;
}

std::string check_row(const std::string& about, const CheckResult& c, bool verbose) {
  const char* verdict = c.result == Outcome::pass   ? "ok   "
                        : c.result == Outcome::fail ? "FAIL "
                                                    : "skip ";
  const std::string subject = about == "decoder" ? "" : about + ": ";
  std::string out = line(fmt::format("  {} {:<11} ", verdict, c.id), subject + c.message);
  for (std::size_t i = 1; i < c.findings.size() && verbose; ++i)
    out += line(std::string(20, ' '), c.findings[i].message);
  if (c.findings.size() > 1 && !verbose)
    out += line(std::string(20, ' '),
                fmt::format("and {} more (--verbose lists all)", c.findings.size() - 1));
  return out;
}

std::string logits_text(const RunRequest& request, const RunResult& r) {
  if (!r.logits) return {};
  const RunStage& l = *r.logits;
  std::string out = fmt::format("logits at tp {} and tp 1 differ by at most {:.3g}", request.tp,
                                l.largest_difference);
  out += l.largest_ratio ? fmt::format(", {:.2g} of the bound", *l.largest_ratio)
                         : std::string("; bounds through all layers are for f64 alone");
  return line("", out);
}

}  // namespace

std::string run_text(const RunRequest& request, const RunResult& r, double elapsed_s) {
  std::size_t failed = 0, passed = 0;
  for (const auto& [about, c] : r.checks)
    failed += c.result == Outcome::fail ? 1 : 0, passed += c.result == Outcome::pass ? 1 : 0;
  const std::string verdict =
      failed > 0
          ? fmt::format("{} of {} checks failed in {:.1f} s\n", failed, failed + passed, elapsed_s)
          : fmt::format("{} checks passed in {:.1f} s\n", passed, elapsed_s);
  if (request.output.quiet) {
    std::string out;
    if (!r.generated.empty()) out += fmt::format("{}\n", fmt::join(r.generated, " "));
    return out + fmt::format("tp {}: {}", request.tp, verdict);
  }
  const bool verbose = request.output.verbose;
  std::string out = title(request, r) + "\n" + line("prompt     ", ids_text(r.prompt, verbose));
  if (!r.generated.empty()) out += line("generated  ", ids_text(r.generated, true));
  out += "\n" + step_rows(r, verbose) + "\n" + stage_rows(r, verbose) + "\n";
  for (const auto& [about, c] : r.checks) out += check_row(about, c, verbose);
  const Index most = *std::max_element(r.weight_bytes.begin(), r.weight_bytes.end());
  out += "\n" + logits_text(request, r) +
         fmt::format("per rank: weights {}, kv cache {} a token\n",
                     binary_size(static_cast<double>(most)),
                     binary_size(static_cast<double>(r.kv_bytes_per_token)));
  return out + verdict;
}

std::string run_html(const RunRequest& request, const RunResult& result, double elapsed_s) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tpsim run</title>"
         "</head><body>\n<pre>" +
         escaped(run_text(request, result, elapsed_s)) + "</pre>\n</body></html>\n";
}

}  // namespace tpsim::cli
