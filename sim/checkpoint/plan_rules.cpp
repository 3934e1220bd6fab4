// SPDX-License-Identifier: MIT
#include "plan_rules.hpp"

#include <algorithm>
#include <utility>

namespace tpsim::checkpoint_detail {
namespace {

constexpr std::string_view weight_leaf = ".weight";

/// The parameter's place among all, and the place of the rule's first part in it.
using Place = std::pair<std::size_t, std::size_t>;
Place place_of(const PlanRule& rule, const std::vector<DecoderParam>& params) {
  const DecoderParam* param = find_param(params, layer_of(rule), rule.style);
  if (param == nullptr) return {params.size(), 0};
  const auto index = static_cast<std::size_t>(param - params.data());
  const std::string label = rule.rows.substr(0, rule.rows.find(':'));
  for (std::size_t k = 0; k < param->parts.size(); ++k)
    if (param->parts[k].label == label) return {index, k};
  return {index, 0};
}

PlanTensor bias_tensor(const PlanTensor& weight) {
  PlanTensor bias = weight;
  bias.name = bias_of(weight.name);
  bias.cols.clear();
  // The bias of a row-parallel layer is as long as its rows, which no cut divides.
  if (bias.style == "row") bias.style = "replicated", bias.cut.clear();
  return bias;
}

}  // namespace

std::string layer_of(const PlanRule& rule) {
  if (!rule.into.empty()) return rule.into;
  return rule.name.ends_with(weight_leaf)
             ? rule.name.substr(0, rule.name.size() - weight_leaf.size())
             : rule.name;
}

std::string bias_of(const std::string& weight) {
  const std::string stem =
      weight.ends_with(weight_leaf) ? weight.substr(0, weight.size() - weight_leaf.size()) : weight;
  return stem + ".bias";
}

std::vector<PlanTensor> plan_tensors(
    const std::vector<PlanRule>& rules, const std::vector<DecoderParam>& params,
    const std::function<bool(const std::string&, const std::string&)>& holds) {
  std::vector<const PlanRule*> ordered;
  for (const PlanRule& rule : rules) ordered.push_back(&rule);
  std::stable_sort(ordered.begin(), ordered.end(), [&](const PlanRule* a, const PlanRule* b) {
    return place_of(*a, params) < place_of(*b, params);
  });
  std::vector<PlanTensor> out;
  for (const PlanRule* rule : ordered) {
    if (!holds(rule->when, rule->name)) continue;
    PlanTensor weight{rule->name, rule->rows, rule->cols,     rule->style,
                      rule->cut,  {},         layer_of(*rule)};
    const bool with_bias = holds(rule->bias, bias_of(rule->name));
    out.push_back(weight);
    if (with_bias) out.push_back(bias_tensor(weight));
  }
  return out;
}

void complete_axes(Axes& axes) {
  const auto has = [&](const char* name) { return axes.find(name) != axes.end(); };
  if (has("h") && !has("kv") && !has("g")) axes["kv"] = axes["h"], axes["g"] = 1;
  if (!has("h") && has("kv") && has("g")) axes["h"] = axes["kv"] * axes["g"];
  if (!has("m") && has("d")) axes["m"] = axes["d"];
}

}  // namespace tpsim::checkpoint_detail
