// SPDX-License-Identifier: MIT
// The numeric reading of a stage with the checkpoint's numbers.
#pragma once

#include "sim/check_command.hpp"
#include "sim/check_stages.hpp"

namespace tpsim::cli {

/// Of --dtype, else as the checkpoint has it, else f32.
[[nodiscard]] DType numeric_dtype(const CheckRequest& request, const CheckedModel& model);

inline constexpr Index numeric_tokens = 4;
/// Elements of a vocabulary's table that are in memory at once, on the ranks and in full().
inline constexpr Index elements_at_once = Index{1} << 25;

struct Numbers {
  const StageMaker& stages;
  const CheckedModel& model;
  const CheckRequest& request;
};

/// Checks `rounding` and `replicas` on the stage's numbers, which are in memory while this runs and
/// no longer; a large table of the vocabulary is taken some columns at a time.
/// @param first  of its kind: `integer`, which needs no checkpoint, is checked too
[[nodiscard]] std::vector<CheckResult> read_numbers(const Numbers& numbers, const Stage& stage,
                                                    bool first);

}  // namespace tpsim::cli
