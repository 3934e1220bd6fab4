// SPDX-License-Identifier: MIT
// The law `names`: every tensor of a checkpoint is read once, every parameter written.
#pragma once

#include <span>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/safetensors.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {

/// Compares what the plan wants with what the files hold: tensors that are missing, extra (with the
/// missing name that is nearest), there twice, of another shape or of a dtype that no weight has,
/// and parts of parameters that nothing writes; all of them.
/// @post compared is the number of tensors held
[[nodiscard]] CheckResult check_names(const BoundModel& model,
                                      std::span<const SafetensorsEntry> held);

}  // namespace tpsim
