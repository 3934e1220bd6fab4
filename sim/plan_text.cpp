// SPDX-License-Identifier: MIT
// `tpsim plan` for terminals.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tpsim/version.hpp>

#include "sim/plan_command.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

// "1, 2, 4, 8-16"
std::string ranges(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    // Two neighbours are no range.
    if (j == i + 1) --j;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (j > i) out += "-" + std::to_string(numbers[j]);
    i = j + 1;
  }
  return out;
}

std::string sizes_text(const ModelShape& m) {
  std::string out = fmt::format(
      "hidden {}, intermediate {}, layers {}, heads {}, kv heads {}, head dim {}, vocab {}{}",
      m.hidden, m.intermediate, m.layers, m.heads, m.kv_heads, m.head_dim, m.vocab,
      m.tied ? ", tied" : "");
  if (m.experts > 0)
    out += fmt::format(", experts {} of width {}, {} a token", m.experts, m.expert_intermediate,
                       m.experts_per_token);
  const Quantization& q = m.quantization;
  if (q.method == QuantMethod::none) return out;
  out += fmt::format(", {}", name(q.method));
  if (q.bits > 0)
    out += fmt::format(" of {} bits {}", q.bits,
                       q.group_size > 0 ? fmt::format("in groups of {}", q.group_size)
                                        : std::string("without groups"));
  if (q.block_n > 0) out += fmt::format(" in blocks of {} x {}", q.block_n, q.block_k);
  return out;
}

// "4 ranks, 10 or 11 experts of a layer each"
std::string experts_text(const TpCost& cost) {
  const auto [least, most] = std::minmax_element(cost.experts.begin(), cost.experts.end());
  return fmt::format("{} rank{}, {}{} experts of a layer each", cost.experts.size(),
                     cost.experts.size() == 1 ? "" : "s",
                     *least == *most ? "" : fmt::format("{} or ", *least), *most);
}

// "12.3 ms", three digits
std::string duration(double seconds) {
  const char* const units[] = {"us", "ms", "s"};
  double value = seconds * 1e6;
  int unit = 0;
  while (value >= 999.5 && unit < 2) value /= 1000, ++unit;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

// What the estimated times rest on.
std::string estimate_text(const PlanRequest& request, const ModelShape& m) {
  const DeviceFigures d = device_of(request, m);
  const PlanRequest usual;
  const bool h100 = request.bandwidth == usual.bandwidth && request.flops == usual.flops &&
                    request.link == usual.link && request.latency == usual.latency;
  return fmt::format(
      "estimated: a token after a prompt of {}, and that prompt; reading at {:g} TB/s or computing "
      "at {:g} TFLOP/s, the longer, then sending at {:g} GB/s and {} us a collective{}",
      request.tokens, d.bandwidth / 1e12, d.flops / 1e12, d.link / 1e9, request.latency,
      h100 ? " (H100 SXM)" : "");
}

std::string cost_table(const PlanRequest& request, const PlanResult& result) {
  std::string out = fmt::format("{:>5}{:>11}{:>12}{:>11}{:>13}{:>11}{:>8}{:>8}\n", "tp", "weights",
                                "replicated", "kv cache", "collectives", "wire", "token", "prompt");
  std::map<std::string, std::vector<int>> by_collectives, by_experts;
  for (const PlanRun& run : result.runs) {
    if (!run.cost) continue;
    const TpCost& c = *run.cost;
    const RankBytes& most = *std::max_element(
        c.weights.begin(), c.weights.end(),
        [](const RankBytes& a, const RankBytes& b) { return a.total() < b.total(); });
    Index count = 0;
    std::string each;
    for (const PlannedCollective& p : c.collectives) {
      count += p.count;
      each += fmt::format("{}{} {} of {}", each.empty() ? "" : ", ", p.count, p.op,
                          binary_size(static_cast<double>(p.array_bytes)));
    }
    const auto size = [](Index bytes) { return binary_size(static_cast<double>(bytes)); };
    out +=
        fmt::format("{:>5}{:>11}{:>12}{:>11}{:>13}{:>11}{:>8}{:>8}\n", run.tp, size(most.total()),
                    size(most.replicated), size(c.kv_bytes_per_token), count, size(c.wire_bytes),
                    duration(run.seconds.token), duration(run.seconds.prompt));
    if (count > 0) by_collectives[each].push_back(run.tp);
    if (request.ep > 0) by_experts[experts_text(c)].push_back(run.tp);
  }
  out += line("      ",
              "weights of the fullest rank, and how much of them other ranks hold too; kv cache, "
              "collectives and bytes sent by a rank for one token");
  out += line("      ", estimate_text(request, result.model.shape));
  for (const auto* by : {&by_experts, &by_collectives}) {
    std::vector<std::pair<std::vector<int>, std::string>> order;
    for (const auto& [text, tps] : *by) order.emplace_back(tps, text);
    std::sort(order.begin(), order.end());
    for (const auto& [tps, text] : order)
      out += line("      ", fmt::format("tp {}: {}", ranges(tps), text));
  }
  return out;
}

std::string illegal_run(const PlanRun& run, bool verbose) {
  std::string out = fmt::format("\ntp {} is not possible\n", run.tp);
  for (const BrokenRule& rule : run.broken) {
    out += line("  " + pad(rule.id, 6) + "  ", rule.message);
    if (verbose) out += line("          ", "[" + rule.source + "]");
  }
  for (const TpPadding& p : run.padding)
    out += line("  fix     ", fmt::format("{}; {} more weights", p.text,
                                          binary_size(static_cast<double>(p.added_bytes))));
  return out;
}

std::string rules_text(Engine engine) {
  std::string out = fmt::format("\nrules of {}\n", name(engine));
  for (const RuleText& r : rule_texts(engine)) {
    out += line("  " + pad(r.what, 14), r.rule);
    out += line("                ", "[" + r.source + "]");
  }
  return out;
}

}  // namespace

std::string plan_text(const PlanRequest& request, const PlanResult& result) {
  const std::vector<int> legal = result.legal_tp();
  const std::string verdict =
      legal.empty() ? std::string("no tp is possible") : "tp can be " + ranges(legal);
  if (request.output.quiet) return verdict + "\n";
  const ModelShape& m = result.model.shape;
  std::string out =
      line("", fmt::format("tpsim {}  plan  rules {}{}  dtype {}  model {}", TPSIM_VERSION,
                           request.rules, request.ep > 0 ? fmt::format("  ep {}", request.ep) : "",
                           name(m.dtype), m.name));
  out += line("", sizes_text(m));
  for (const std::string& note : result.model.notes) out += line("note: ", note);
  out += "\n" + line("", verdict);
  if (!legal.empty()) out += cost_table(request, result);

  // Without a list of tp the reasons of the usual ones are enough.
  constexpr int shown_up_to = 8;
  const bool all = request.tp_chosen || request.output.verbose;
  std::vector<int> more;
  for (const PlanRun& run : result.runs) {
    if (run.broken.empty()) continue;
    if (all || run.tp <= shown_up_to)
      out += illegal_run(run, request.output.verbose);
    else
      more.push_back(run.tp);
  }
  if (!more.empty())
    out += "\n" + line("", fmt::format("not possible either: tp {}\n--tp {} says why, --verbose "
                                       "tells all",
                                       ranges(more), more.front()));
  if (request.output.verbose)
    for (const Engine e : {Engine::nano_vllm, Engine::vllm, Engine::megatron, Engine::transformers})
      if (name(e) == request.rules) out += rules_text(e);
  return out;
}

}  // namespace tpsim::cli
