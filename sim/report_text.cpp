// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include <tpsim/verify/replay.hpp>
#include <tpsim/version.hpp>

#include "sim/report.hpp"

namespace tpsim::cli {
namespace {

std::string binary_size(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}
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
      if (p.label.find("heads") != std::string::npos) return "rows cut by head";
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

std::string reading_text(const CheckResult& c) {
  std::string out(name(c.reading));
  if (c.result == Outcome::pass && c.log2_miss)
    out += fmt::format(", misses a fault < 2^{}", std::floor(-*c.log2_miss) <= 1000
                                                      ? -static_cast<int>(std::floor(-*c.log2_miss))
                                                      : -1000);
  return out;
}

// `text` in lines of at most `width` terminal columns, the later ones after `indent` blanks. Breaks
// at blanks; a word that is too long stays whole.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::string out, line;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool forced = end < text.size() && text[end] == '\n';
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      out += line + "\n" + std::string(indent, ' ');
      line = word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    if (forced) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    begin = end + 1;
  }
  return out + line;
}

}  // namespace

std::string text_report(const LayerRequest& request, const LayerResult& result, bool color,
                        bool utf8) {
  const Report& report = result.report;
  const auto paint = [&](const char* code, const std::string& text) {
    return color ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  };
  std::string out;
  std::size_t failed = 0, passed = 0;
  for (const CheckResult& c : report.checks)
    failed += c.result == Outcome::fail ? 1 : 0, passed += c.result == Outcome::pass ? 1 : 0;
  const std::string verdict = failed > 0 ? fmt::format("{} of {} checks failed in {:.1f} s", failed,
                                                       failed + passed, result.elapsed_s)
                                         : fmt::format("{} check{} passed in {:.1f} s", passed,
                                                       passed == 1 ? "" : "s", result.elapsed_s);
  if (request.output.quiet)
    return fmt::format("{} tp {}: {}\n", report.subject, report.tp, verdict);

  out += fmt::format(
      "tpsim {}  layer {}  tp {}  {}  tokens {}  dtype {}  seed {}", TPSIM_VERSION, report.subject,
      report.tp,
      request.toy ? "toy" : (request.weights.empty() ? "model " : "weights ") + request.model,
      result.spec.tokens, name(request.dtype), request.seed);
  if (!request.module.empty()) out += fmt::format("\nmodule {}", request.module);
  if (!request.fault.empty()) out += fmt::format("  fault {}", request.fault);
  out += "\n\n";
  for (const TensorReport& t : report.tensors) {
    if (t.full_shape.rank() == 1 && !request.output.verbose) {
      out += fmt::format("{} {}, {}\n\n", t.name, t.full_shape.str(),
                         !t.tp_dim ? "whole on every rank" : "cut like the rows of its weight");
      continue;
    }
    out += fmt::format("{} {}, {}\n{}", t.name, t.full_shape.str(), how_cut(t),
                       shard_table(t, utf8, request.output.verbose));
    out += fmt::format("      {} of {}\n\n", t.tp_dim == 1 ? "columns" : "rows", sources(t));
  }
  std::string cause, repair;
  for (const CheckResult& c : report.checks) {
    if (c.result == Outcome::skip && !request.output.verbose && c.id != "integer" &&
        c.id != "exact" && c.id != "rounding")
      continue;
    const std::string word = c.result == Outcome::pass   ? paint("32", "ok   ")
                             : c.result == Outcome::fail ? paint("31;1", "FAIL ")
                                                         : paint("33", "skip ");
    // "  FAIL  collectives " is 20 columns wide; 59 remain for the text of a finding.
    constexpr std::size_t indent = 20, width = 59;
    if (c.findings.empty()) {
      const std::string reading = reading_text(c);
      const bool fits = c.message.size() <= width - 1;
      out += fmt::format("  {} {:<11} {:<{}}{}{}\n", word, c.id, wrapped(c.message, width, indent),
                         width - 1, fits ? "  " : "\n" + std::string(indent + width + 1, ' '),
                         reading);
    } else {
      out += fmt::format("  {} {:<11} {}\n", word, c.id,
                         wrapped(c.findings.front().message, width, indent));
      for (std::size_t i = 1; request.output.verbose && i < c.findings.size(); ++i)
        out += std::string(indent, ' ') + wrapped(c.findings[i].message, width, indent) + "\n";
      if (!request.output.verbose && c.findings.size() > 1)
        out += fmt::format("{}and {} more (--verbose lists all)\n", std::string(indent, ' '),
                           c.findings.size() - 1);
    }
    for (const Finding& f : c.findings)
      if (cause.empty() && !f.cause.empty()) cause = f.cause, repair = f.repair;
    if (request.output.verbose && c.largest_ratio)
      out += fmt::format("{}largest at {}; sees faults above {:.2g} of the output's size\n",
                         std::string(indent, ' '), c.largest_at, c.detection_floor.value_or(0));
  }
  if (!cause.empty())
    out += wrapped("cause: " + cause, 79, 7) + "\n" +
           (repair.empty() ? "" : wrapped("repair: " + repair, 79, 8) + "\n");
  out += "\n";
  const Cost& cost = report.cost;
  if (!cost.weight_bytes.empty()) {
    out += fmt::format("per rank: weights {} of {}, {} of {}, wire {}",
                       binary_size(static_cast<double>(cost.weight_bytes[0])),
                       binary_size(static_cast<double>(cost.full_weight_bytes)),
                       decimal_flop(static_cast<double>(cost.flop[0])),
                       decimal_flop(static_cast<double>(cost.full_flop)),
                       binary_size(static_cast<double>(cost.wire_bytes[0])));
    if (cost.kv_bytes_per_token[0] > 0)
      out += fmt::format(", kv cache {} a token",
                         binary_size(static_cast<double>(cost.kv_bytes_per_token[0])));
    out += "\n";
  }
  for (const CollectiveReport& c : report.collectives)
    out += fmt::format("{} {} {} in group {} at {}\n", c.op, c.shape.str(), c.dtype, c.group, c.at);
  out += paint(failed > 0 ? "31;1" : "32", verdict) + "\n";
  if (!result.smallest.empty())
    out += fmt::format("\nsmallest failing case ({} tests, {} shrinks)\n    {}\n", result.tests,
                       result.shrinks, shell_line(result.smallest));
  for (const CheckResult& c : report.checks)
    if (c.result == Outcome::fail) {
      out += fmt::format("read more\n    tpsim explain {}\n", c.id);
      break;
    }
  return out;
}

}  // namespace tpsim::cli
