// SPDX-License-Identifier: MIT
#include "sim/check_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "sim/check_cost.hpp"
#include "sim/check_numeric.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/progress.hpp"
#include "sim/subjects.hpp"
#include "sim/terminal.hpp"

namespace tpsim::cli {
namespace {

// The exact reading's prompt is two sequences, the longer one longer than a small window.
constexpr Index stage_tokens = 8;

bool failed(const std::vector<CheckResult>& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const CheckResult& c) { return c.result == Outcome::fail; });
}

class ModelRun {
 public:
  ModelRun(const CheckRequest& request, const CheckedModel& model, int tp, bool weights)
      : request_(request),
        model_(model),
        numbers_(weights && request.numeric),
        stages_(model.model, tp, request.fault) {
    run_.tp = tp;
  }

  [[nodiscard]] CheckRun take() {
    if (request_.statics) run_.cost = no_cost(run_.tp);
    stage({Stage::What::embedding});
    const std::vector<std::size_t>& kinds = model_.model.kind_of_layer;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      Stage layer{Stage::What::layer, kinds[i], static_cast<Index>(i)};
      const bool first = model_.first_layer(kinds[i]) == layer.layer;
      if (first || numbers_) stage(layer, first);
      layer.decode = true;
      if (first) stage(layer);
    }
    stage({Stage::What::norm});
    stage({Stage::What::head});
    if (request_.statics)
      add({"model", {check_collectives_of(*run_.cost, model_.model, run_.tp)}}, std::nullopt);
    return std::move(run_);
  }

 private:
  /// @param first  of its kind; the others have other numbers alone
  void stage(const Stage& stage, bool first = true) {
    StageResult result{stage.name(), {}};
    const auto put = [&](std::vector<CheckResult> checks) {
      for (CheckResult& c : checks) result.checks.push_back(std::move(c));
    };
    if (first && request_.statics) put(statics(stage));
    if (first && request_.exact) put(exactly(stage));
    if (request_.numeric) put(numerically(stage, first));
    add(std::move(result), stage);
  }

  void add(StageResult result, std::optional<Stage> stage) {
    if (!run_.first && request_.reports() && failed(result.checks)) {
      if (stage) {
        run_.first = locate(stages_, *stage, result.checks, request_.seed);
      } else {
        run_.first.emplace();
        run_.first->stage = result.stage;
        run_.first->check = result.checks.front();
      }
    }
    run_.stages.push_back(std::move(result));
  }

  [[nodiscard]] std::vector<CheckResult> statics(const Stage& stage) {
    VerifyOptions o;
    o.exact = o.numeric = false;
    o.dtype = model_.dtype();
    Report report = verify(*stages_.full(stage, stage_tokens), o);
    if (!stage.decode) add_cost(*run_.cost, report, stage, model_.model, model_.dtype());
    return std::move(report.checks);
  }

  [[nodiscard]] std::vector<CheckResult> exactly(const Stage& stage) const {
    VerifyOptions o;
    o.statics = o.numeric = false;
    o.seed = request_.seed, o.world = request_.world;
    std::vector<CheckResult> checks = verify(*stages_.reduced(stage, stage_tokens), o).checks;
    if (!request_.full || stage.decode) return checks;
    for (CheckResult& c : verify(*stages_.full(stage, tokens_at_full_size), o).checks) {
      c.message += " at full size";
      checks.push_back(std::move(c));
    }
    return checks;
  }

  [[nodiscard]] std::vector<CheckResult> numerically(const Stage& stage, bool first) const {
    if (numbers_) {
      if (stage.decode) return {};
      return read_numbers({stages_, model_, request_}, stage, first);
    }
    // Without a checkpoint, only when asked for: generated numbers at the reduced size.
    if (!request_.readings_chosen || !first) return {};
    VerifyOptions o;
    o.statics = o.exact = false;
    o.seed = request_.seed, o.all_reduce = request_.all_reduce, o.world = request_.world;
    o.dtype = numeric_dtype(request_, model_);
    const std::unique_ptr<NumericEngine> engine = engine_of(request_.backend, request_.tf32);
    o.engine = engine.get();
    return verify(*stages_.reduced(stage, stage_tokens), o).checks;
  }

  const CheckRequest& request_;
  const CheckedModel& model_;
  bool numbers_;
  StageMaker stages_;
  CheckRun run_;
};

}  // namespace

CheckRun check_one(const CheckRequest& request, const CheckedModel& model, int tp, bool weights) {
  const auto start = std::chrono::steady_clock::now();
  const Progress progress(stderr, show_progress(request.output),
                          fmt::format("checking {} tp {}", model.name, tp));
  CheckRun run = ModelRun(request, model, tp, weights).take();
  run.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace tpsim::cli
