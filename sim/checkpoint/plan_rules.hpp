// SPDX-License-Identifier: MIT
// From the rules of a model plan to the tensors of a `Plan`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tpsim/checkpoint/model_plan.hpp>
#include <tpsim/layout/plan.hpp>

#include "decoder_params.hpp"

namespace tpsim::checkpoint_detail {

/// What a rule fills: `into`, or the name without ".weight".
[[nodiscard]] std::string layer_of(const PlanRule& rule);
/// "self_attn.q_proj.weight" -> "self_attn.q_proj.bias".
[[nodiscard]] std::string bias_of(const std::string& weight);

/// The tensors of the rules whose condition holds, each followed by its bias; in the order in which
/// parameters have their parts (q, k, v; gate, up).
/// @param holds  tells whether a condition holds; the second argument names it
[[nodiscard]] std::vector<PlanTensor> plan_tensors(
    const std::vector<PlanRule>& rules, const std::vector<DecoderParam>& params,
    const std::function<bool(const std::string&, const std::string&)>& holds);

/// Axes that follow from others: h = kv*g and m = d; kv = h and g = 1 when h stands alone.
void complete_axes(Axes& axes);

}  // namespace tpsim::checkpoint_detail
