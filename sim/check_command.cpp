// SPDX-License-Identifier: MIT
#include "sim/check_command.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include <tpsim/checkpoint/check_names.hpp>
#include <tpsim/core/text.hpp>

#include "sim/check_numeric.hpp"
#include "sim/check_run.hpp"
#include "sim/commands.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/job.hpp"
#include "sim/options.hpp"
#include "sim/report.hpp"
#include "sim/shared_options.hpp"
#include "sim/terminal.hpp"

namespace tpsim::cli {
namespace {

constexpr int most_of_all = 64;

void parse_tp(const std::string& text, CheckRequest& r) {
  r.all_tp = text == "all";
  if (r.all_tp) {
    for (int tp = 1; tp <= most_of_all; ++tp) r.tp.push_back(tp);
    return;
  }
  r.tp = parse_tp_list(text);
}

CheckResult names_of(const CheckedModel& model) {
  if (model.files) return check_names(model.model, model.files->entries());
  CheckResult skipped{.id = "names"};
  skipped.message = "no weights here: a shape alone";
  return skipped;
}

// Each stage as the report files have a layer.
std::vector<LayerResult> stages_as_results(const CheckRequest& request,
                                           const CheckOutcome& result) {
  const std::vector<std::string> command{"tpsim", "check", request.model, "--tp"};
  std::vector<LayerResult> out;
  const auto add = [&](int tp, const std::string& stage, std::vector<CheckResult> checks) {
    LayerResult one;
    one.report.subject = stage, one.report.tp = tp;
    one.report.checks = std::move(checks);
    one.command = command;
    one.command.push_back(std::to_string(tp));
    if (!request.fault.empty()) one.command.insert(one.command.end(), {"--fault", request.fault});
    out.push_back(std::move(one));
  };
  add(request.tp.front(), "checkpoint", {result.names});
  for (const CheckRun& run : result.runs)
    for (const StageResult& s : run.stages) add(run.tp, s.stage, s.checks);
  for (LayerResult& one : out) one.spec.tp = one.report.tp;
  return out;
}

void write_files(const CheckRequest& request, const std::vector<LayerResult>& stages) {
  LayerRequest names;
  names.fault = request.fault, names.seed = request.seed;
  const Output& o = request.output;
  if (!o.html.empty()) write_file(o.html, html_report(names, stages));
  if (!o.junit.empty()) write_file(o.junit, junit_report(names, stages));
}

}  // namespace

CheckRequest parse_check(const std::string& model, const Given& given, RankWorld* world) {
  const std::vector<std::string> own{"tp",    "reading", "dtype",   "all-reduce", "seed",  "plan",
                                     "fault", "full",    "json",    "html",       "junit", "color",
                                     "quiet", "verbose", "backend", "tf32",       "comm"};
  for (const auto& [name, value] : given)
    if (std::find(own.begin(), own.end(), name) == own.end())
      throw UsageError(fmt::format("--{} is no option of 'check'", name),
                       "'check' takes --tp, --reading, --dtype, --all-reduce, --seed, --backend, "
                       "--tf32, --plan, --fault, --full, --comm and the options of output");
  CheckRequest r;
  if (model.empty())
    throw UsageError("'tpsim check' needs a model",
                     "for example: tpsim check llama-3-8b --tp 1,2,4");
  r.model = model;
  read_comm(given, world, r);
  if (given.count("tp") == 0 && r.world == nullptr)
    throw UsageError("--tp is missing", "for example: tpsim check llama-3-8b --tp 1,2,4");
  if (given.count("tp") == 0)
    r.tp = {r.world->size()};
  else
    parse_tp(given.at("tp"), r);
  if (r.world != nullptr && (r.all_tp || r.tp.size() != 1))
    throw UsageError(
        fmt::format("with --comm {} the tp is the number of processes, one at a time", r.comm),
        fmt::format("leave --tp out, or give --tp {}", r.world->size()));
  require_tp(r.tp.front(), r);
  if (const auto it = given.find("reading"); it != given.end())
    static_cast<Readings&>(r) = parse_readings(it->second);
  r.dtype = parse_numeric_dtype(given);
  r.all_reduce = parse_all_reduce(given);
  r.seed = parse_seed(given);
  r.backend = parse_backend(given);
  r.tf32 = parse_tf32(given, r.backend, r.dtype);
  if (const auto it = given.find("plan"); it != given.end()) r.plan_file = it->second;
  r.full = given.count("full") != 0;
  if (r.full && !r.exact)
    throw UsageError("--full is about the exact reading, which --reading leaves out",
                     "leave one of the two out");
  r.fault = parse_fault(given);
  if (!r.fault.empty()) require_fault_runs(r.fault, r.backend);
  return r;
}

Outcome CheckRun::outcome(Reading reading) const {
  Outcome out = Outcome::skip;
  for (const StageResult& s : stages)
    for (const CheckResult& c : s.checks) {
      if (c.reading != reading) continue;
      if (c.result == Outcome::fail) return Outcome::fail;
      if (c.result == Outcome::pass) out = Outcome::pass;
    }
  return out;
}

Outcome CheckRun::outcome() const {
  Outcome out = Outcome::skip;
  for (const Reading r : {Reading::statics, Reading::exact, Reading::numeric}) {
    const Outcome one = outcome(r);
    if (one == Outcome::fail) return one;
    if (one == Outcome::pass) out = one;
  }
  return out;
}

bool CheckOutcome::passed() const {
  return names.result != Outcome::fail && std::none_of(runs.begin(), runs.end(), [](auto& run) {
           return run.outcome() == Outcome::fail;
         });
}

CheckOutcome check(const CheckRequest& request, const CheckedModel& model) {
  if (!request.all_tp)
    require_legal(model.model, model.name, request.tp, most_of_all,
                  "; --tp all checks these and reports the others");
  CheckOutcome out;
  out.names = names_of(model);
  const bool weights = model.files && out.names.result == Outcome::pass;
  require_stage_memory(request, model, weights);
  for (const int tp : request.tp) {
    CheckRun run;
    run.tp = tp;
    run.broken = model.broken(tp);
    if (run.broken.empty()) run = check_one(request, model, tp, weights);
    out.runs.push_back(std::move(run));
  }
  return out;
}

int run_check(const CheckRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  const CheckedModel model = open_checked_model(request.model, request.plan_file);
  if (request.tf32) require_tf32_applies(numeric_dtype(request, model));
  for (const std::string& path : {request.output.html, request.output.junit})
    if (!path.empty() && request.reports()) require_writable(path);
  const CheckOutcome result = check(request, model);
  if (!request.reports()) return 0;  // the exit status is the root's
  const std::vector<LayerResult> stages = stages_as_results(request, result);
  write_files(request, stages);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::fputs((request.output.json ? check_json(request, model, result, elapsed.count()) + "\n"
                                  : check_text(request, model, result, use_color(request.output)))
                 .c_str(),
             stdout);
  annotate(request.output, stages);
  return result.passed() ? 0 : 1;
}

}  // namespace tpsim::cli
