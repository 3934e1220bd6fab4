// SPDX-License-Identifier: MIT
// `tpsim plan MODEL`: which tp a model can use, and every reason why not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tpsim/verify/tp_padding.hpp>
#include <tpsim/verify/tp_time.hpp>

#include "sim/command_line.hpp"
#include "sim/models.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// What one tp breaks, or costs.
struct PlanRun {
  int tp = 1;
  std::vector<BrokenRule> broken;  ///< empty when the tp is legal
  std::vector<TpPadding> padding;  ///< one for each area that padding can mend
  std::optional<TpCost> cost;      ///< of a legal tp
  TpTime seconds;                  ///< of a legal tp, estimated
};

struct PlanResult {
  NamedModel model;
  std::vector<PlanRun> runs;
  [[nodiscard]] std::vector<int> legal_tp() const;
};

/// @throws UsageError
[[nodiscard]] PlanRequest parse_plan(const std::string& model, const Given& given);
[[nodiscard]] PlanResult plan(const PlanRequest& request);

[[nodiscard]] std::string plan_text(const PlanRequest& request, const PlanResult& result);
[[nodiscard]] std::string plan_json(const PlanRequest& request, const PlanResult& result,
                                    double elapsed_s);

/// What times are estimated from.
[[nodiscard]] DeviceFigures device_of(const PlanRequest& request, const ModelShape& m);

/// The padding that mends `rule`, or null.
[[nodiscard]] const TpPadding* fix_of(const PlanRun& run, const BrokenRule& rule);

}  // namespace tpsim::cli
