// SPDX-License-Identifier: MIT
// `tpsim check MODEL --tp 1,2,4`: a whole model, stage by stage.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tpsim/verify/report.hpp>

#include "sim/check_model.hpp"
#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// One stage with what its readings said.
struct StageResult {
  std::string stage;  ///< "embed_tokens", "layers.0", "layers.0 decode", "norm", "lm_head"
  std::vector<CheckResult> checks;
};

/// Where a model first leaves what it means.
struct Divergence {
  std::string stage;          ///< "layers.0"
  std::string part;           ///< "self_attn.qkv_proj"; "" when the stage has no parts
  CheckResult check;          ///< the first that failed there
  int rank = -1;              ///< -1: all of them
  std::optional<Index> head;  ///< of q, k and v, counted over the whole model
  std::optional<Index> row;   ///< of the logical tensor `tensor`, at the size that was run
  std::string tensor;         ///< "self_attn.k_proj.weight"; "" when it is not known
  bool reduced = false;       ///< head and row are those of the reduced size
};

/// A kind of collective in one forward.
struct ModelCollective {
  std::string op;
  Index count = 0;
  Index bytes_per_token = 0;  ///< of one rank's input
};
/// Of one forward; by rank.
struct ModelCost {
  std::vector<Index> weight_bytes, kv_bytes_per_token, wire_bytes_per_token;
  std::vector<ModelCollective> collectives;
};

/// One tp.
struct CheckRun {
  int tp = 1;
  std::vector<Violation> broken;  ///< empty when the tp is legal
  std::vector<StageResult> stages;
  std::optional<ModelCost> cost;  ///< of a static reading
  std::optional<Divergence> first;
  double elapsed_s = 0;
  /// fail when a check failed, pass when one passed; skip when there was nothing to compare.
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] Outcome outcome(Reading reading) const;
};

struct CheckOutcome {
  CheckResult names;
  std::vector<CheckRun> runs;
  [[nodiscard]] bool passed() const;
};

/// @throws UsageError
[[nodiscard]] CheckRequest parse_check(const std::string& model, const Given& given,
                                       RankWorld* world = nullptr);

/// @throws LayoutError for a tp of the list that is not legal, before anything runs
[[nodiscard]] CheckOutcome check(const CheckRequest& request, const CheckedModel& model);

/// "layers.0 self_attn.qkv_proj, rank 1, head 2, row 5 of self_attn.k_proj.weight"
[[nodiscard]] std::string place_of(const Divergence& d);
/// What a reader might not expect.
[[nodiscard]] std::vector<std::string> notes_of(const CheckRequest& request,
                                                const CheckedModel& model,
                                                const CheckOutcome& result);

/// @param color  ANSI colours
[[nodiscard]] std::string check_text(const CheckRequest& request, const CheckedModel& model,
                                     const CheckOutcome& result, bool color);
[[nodiscard]] std::string check_json(const CheckRequest& request, const CheckedModel& model,
                                     const CheckOutcome& result, double elapsed_s);

}  // namespace tpsim::cli
