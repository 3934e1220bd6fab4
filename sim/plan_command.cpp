// SPDX-License-Identifier: MIT
#include "sim/plan_command.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "sim/commands.hpp"
#include "sim/options.hpp"

namespace tpsim::cli {
namespace {

constexpr int default_most = 64;
constexpr int most_ep = 512;
constexpr Index most_planned_ranks = 32768;
constexpr Index most_tokens = Index{1} << 24, most_figure = 1'000'000;
constexpr std::array<Engine, 4> engines{Engine::nano_vllm, Engine::vllm, Engine::megatron,
                                        Engine::transformers};

const std::vector<std::string> own_options{"tp",        "ep",    "rules",  "plan",    "tokens",
                                           "bandwidth", "flops", "link",   "latency", "json",
                                           "color",     "quiet", "verbose"};

PlanRun plan_one(const PlanRequest& request, const ModelShape& m, Engine engine, int tp) {
  const int ep = request.ep;
  PlanRun run;
  run.tp = tp;
  run.broken = broken_rules(m, engine, tp, ep);
  if (run.broken.empty()) {
    run.cost = tp_cost(m, engine, tp, ep);
    run.seconds = tp_time(m, engine, tp, ep, request.tokens, device_of(request, m));
    return run;
  }
  for (const RuleArea area :
       {RuleArea::attention, RuleArea::mlp, RuleArea::experts, RuleArea::vocab})
    if (auto padding = smallest_padding(m, engine, tp, area, ep))
      run.padding.push_back(std::move(*padding));
  return run;
}

}  // namespace

std::vector<int> PlanResult::legal_tp() const {
  std::vector<int> legal;
  for (const PlanRun& run : runs)
    if (run.broken.empty()) legal.push_back(run.tp);
  return legal;
}

PlanRequest parse_plan(const std::string& model, const Given& given) {
  for (const auto& [name, value] : given)
    if (std::find(own_options.begin(), own_options.end(), name) == own_options.end())
      throw UsageError(fmt::format("--{} is no option of 'plan'", name),
                       "'plan' takes --tp, --ep, --rules, --plan, --tokens, --bandwidth, --flops, "
                       "--link, --latency, --json, --quiet and --verbose");
  PlanRequest r;
  if (model.empty())
    throw UsageError("'tpsim plan' needs a model", "for example: tpsim plan llama-3-8b");
  r.model = model;
  if (const auto it = given.find("rules"); it != given.end()) {
    std::vector<std::string> names;
    for (const Engine e : engines) names.emplace_back(name(e));
    require_choice("rules", it->second, names,
                   "rules are nano-vllm, vllm, megatron and transformers");
    r.rules = it->second;
  }
  if (const auto it = given.find("plan"); it != given.end()) r.plan_file = it->second;
  const auto size = [&](const char* option, Index least, Index most, auto& into) {
    if (const auto it = given.find(option); it != given.end())
      into = static_cast<int>(number(option, it->second, least, most));
  };
  size("ep", 1, most_ep, r.ep);
  size("tokens", 1, most_tokens, r.tokens);
  size("bandwidth", 1, most_figure, r.bandwidth);
  size("flops", 1, most_figure, r.flops);
  size("link", 1, most_figure, r.link);
  size("latency", 0, most_figure, r.latency);
  if (const auto it = given.find("tp"); it != given.end()) {
    r.tp = parse_tp_list(it->second);
    r.tp_chosen = true;
  } else {
    for (int tp = 1; tp <= default_most; ++tp) r.tp.push_back(tp);
  }
  return r;
}

DeviceFigures device_of(const PlanRequest& request, const ModelShape& m) {
  const auto d = [](Index n) { return static_cast<double>(n); };
  return {d(request.bandwidth) * 1e9,
          request.flops ? d(*request.flops) * 1e12 : default_flops(m.dtype), d(request.link) * 1e9,
          d(request.latency) * 1e-6};
}

const TpPadding* fix_of(const PlanRun& run, const BrokenRule& rule) {
  for (const TpPadding& p : run.padding)
    if (p.area == rule.area) return &p;
  return nullptr;
}

PlanResult plan(const PlanRequest& request) {
  PlanResult result;
  result.model = open_model(request.model, request.plan_file);
  const ModelShape& m = result.model.shape;
  const Engine engine = *std::find_if(engines.begin(), engines.end(),
                                      [&](Engine e) { return name(e) == request.rules; });
  if (request.ep > 0 && m.moe_layers() == 0)
    throw UsageError(fmt::format("--ep {}: {} has no experts", request.ep, m.name),
                     "expert parallelism shares out the experts of a layer, as qwen3_moe, mixtral "
                     "and gpt_oss have them; leave --ep out");
  const QuantMethod method = m.quantization.method;
  if (engine == Engine::transformers && method != QuantMethod::none)
    result.model.notes.push_back(fmt::format(
        "how {} groups and blocks may be cut is judged with --rules vllm alone", name(method)));
  if (m.sums.stream == 1 && engine != Engine::transformers)
    result.model.notes.emplace_back(
        "parallel residual: one all_reduce a layer sums attention and MLP, as the decoder layer "
        "here does; an engine whose row-parallel layers sum by themselves calls two");
  if (m.quantization.act_order)
    result.model.notes.emplace_back(
        "desc_act: the scales of row-parallel weights are whole on every rank; not counted here");
  for (const int tp : request.tp)
    if (const Index ranks = ranks_of(engine, tp, request.ep); ranks > most_planned_ranks)
      throw UsageError(fmt::format("tp {} and ep {} are {} ranks", tp, request.ep, ranks),
                       fmt::format("at most {} are planned", most_planned_ranks));
  for (const int tp : request.tp) result.runs.push_back(plan_one(request, m, engine, tp));
  return result;
}

int run_plan(const PlanRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const PlanResult result = plan(request);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::fputs((request.output.json ? plan_json(request, result, elapsed.count()) + "\n"
                                  : plan_text(request, result))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace tpsim::cli
