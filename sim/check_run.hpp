// SPDX-License-Identifier: MIT
// All stages of a model at one tp.
#pragma once

#include "sim/check_command.hpp"
#include "sim/check_stages.hpp"

namespace tpsim::cli {

/// Of the exact reading with --full, where another token costs seconds.
inline constexpr Index tokens_at_full_size = 3;

/// Refuses what this machine cannot hold, before anything is allocated: stages at full size, and
/// those with the checkpoint's weights. Reduced sizes are small, and the static reading has none.
/// @throws UsageError
void require_stage_memory(const CheckRequest& request, const CheckedModel& model, bool weights);

/// @param weights  the numeric reading has the checkpoint's numbers
/// @pre model.broken(tp) is empty
[[nodiscard]] CheckRun check_one(const CheckRequest& request, const CheckedModel& model, int tp,
                                 bool weights);

/// Where a stage that failed first differs: its linear parts, its attention and the whole are run
/// exactly, each with inputs of its own, at the reduced size.
/// @param failed  its checks, one of which failed
[[nodiscard]] Divergence locate(const StageMaker& stages, const Stage& stage,
                                const std::vector<CheckResult>& failed, std::uint64_t seed);

}  // namespace tpsim::cli
