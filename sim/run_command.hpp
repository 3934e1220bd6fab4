// SPDX-License-Identifier: MIT
// `tpsim run DIR`: a real forward pass at one tp, held to tp 1 and, stage by stage, to the
// unsharded model in f64.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/checkpoint/load_model.hpp>

#include "sim/command_line.hpp"
#include "sim/request.hpp"
#include "sim/run_stages.hpp"

namespace tpsim::cli {

/// What a request needs before anything is computed.
struct RunModel {
  BoundModel model;
  StoredModel stored;
  std::string plan;           ///< "llama, built in", or the plan's file
  Index tensors = 0;          ///< of the checkpoint
  std::vector<Index> prompt;  ///< as given, or drawn
};

struct RunStep {
  Index past = 0, tokens = 0;
  std::vector<std::pair<std::string, Index>> collectives;  ///< op and how many, in order
  Index wire_bytes = 0;                                    ///< that a rank sends, as in a ring
  std::vector<std::pair<Index, double>> top;               ///< ids of the largest logits
};

struct RunResult {
  std::string plan, architecture;
  CausalLMShape shape;
  std::vector<std::string> notes;
  std::vector<Index> prompt, generated;
  std::vector<RunStep> steps;
  std::vector<RunStage> stages;
  std::optional<RunStage> logits;   ///< of all steps (a token each) at this tp and at tp 1
  std::vector<Index> weight_bytes;  ///< [rank]
  Index kv_bytes_per_token = 0;     ///< of each rank
  std::vector<std::pair<std::string, CheckResult>> checks;  ///< what each is about
  [[nodiscard]] bool passed() const;
};

/// @throws UsageError
[[nodiscard]] RunRequest parse_run(const std::string& model, const Given& given,
                                   RankWorld* world = nullptr);
/// @throws UsageError, LayoutError for everything that cannot be asked
[[nodiscard]] RunModel open_run(const RunRequest& request);
[[nodiscard]] RunResult run(const RunRequest& request, const RunModel& model);
/// The same with other weights on the ranks of `request.tp`, which then differ from tp 1 and from
/// the unsharded model: how a test sees a difference found.
[[nodiscard]] RunResult run(const RunRequest& request, const RunModel& model,
                            const StoredModel& on_ranks);

[[nodiscard]] std::string run_text(const RunRequest& request, const RunResult& result,
                                   double elapsed_s);
[[nodiscard]] std::string run_html(const RunRequest& request, const RunResult& result,
                                   double elapsed_s);
[[nodiscard]] std::string run_json(const RunRequest& request, const RunResult& result,
                                   double elapsed_s);

}  // namespace tpsim::cli
