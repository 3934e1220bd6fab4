// SPDX-License-Identifier: MIT
// What one forward of a whole model costs, added up over its stages.
#pragma once

#include "sim/check_command.hpp"
#include "sim/check_stages.hpp"

namespace tpsim::cli {

[[nodiscard]] ModelCost no_cost(int tp);

/// Adds a stage as often as the model has it. @param report  of its static reading, of one step
void add_cost(ModelCost& cost, const Report& report, const Stage& stage, const BoundModel& model,
              DType dtype);

/// Check `collectives` of the whole model: one all_reduce for the embedding, those of the layers,
/// and one gather.
[[nodiscard]] CheckResult check_collectives_of(const ModelCost& cost, const BoundModel& model,
                                               int tp);

}  // namespace tpsim::cli
