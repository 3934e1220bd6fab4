// SPDX-License-Identifier: MIT
// The plans and configs that are part of the library.
#include <algorithm>

#include <tpsim/checkpoint/built_in_models.hpp>
#include <tpsim/checkpoint/model_plan.hpp>
#include <tpsim/checkpoint/moe_config.hpp>

#include "embedded.hpp"
#include "nearest.hpp"
#include "problems.hpp"
#include "strict_json.hpp"

namespace tpsim {
using namespace checkpoint_detail;

const std::vector<ModelPlan>& built_in_plans() {
  static const std::vector<ModelPlan> all = [] {
    std::vector<ModelPlan> plans;
    for (const EmbeddedFile& file : embedded_plans())
      plans.push_back(parse_model_plan(file.text, std::string(file.name) + ".json"));
    return plans;
  }();
  return all;
}

const ModelPlan* find_plan(std::string_view model_type) {
  for (const ModelPlan& plan : built_in_plans())
    if (std::find(plan.model_types.begin(), plan.model_types.end(), model_type) !=
        plan.model_types.end())
      return &plan;
  return nullptr;
}

const ModelPlan& plan_for(std::string_view config_json, const std::string& file_name) {
  const nlohmann::json config = parse_strict_json(config_json, file_name);
  const auto it = config.find("model_type");
  const bool given = it != config.end() && it->is_string();
  const std::string type = given ? it->get<std::string>() : "";
  if (const ModelPlan* plan = find_plan(type)) return *plan;
  std::vector<std::string> known;
  for (const ModelPlan& plan : built_in_plans())
    known.insert(known.end(), plan.model_types.begin(), plan.model_types.end());
  std::sort(known.begin(), known.end());
  std::vector<std::string> sized = known;
  sized.insert(sized.end(), moe_model_types().begin(), moe_model_types().end());
  const bool moe = std::find(sized.begin(), sized.end(), type) != sized.end();
  const std::string near = moe ? "" : nearest(type, sized);
  throw LayoutError(
      "cannot use " + shown(file_name),
      {{"config",
        fmt::format("model_type {}; there are plans for {}; of {} sizes alone are known{}",
                    given ? shown(type) + " has no plan" : "is missing", fmt::join(known, ", "),
                    fmt::join(moe_model_types(), ", "),
                    near.empty() ? "" : "; did you mean " + near + "?")}},
      "for another architecture write a plan, a JSON file of some 30 lines, and give it with "
      "--plan FILE; 'Adding an architecture' in README.md shows one");
}

namespace {

/// llama-3-8b before llama-3-70b: numbers count as numbers.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    std::size_t m = i, n = j;
    while (m < a.size() && digit(a[m])) ++m;
    while (n < b.size() && digit(b[n])) ++n;
    if (m - i != n - j) return m - i < n - j;
    if (const int order = a.compare(i, m - i, b, j, n - j); order != 0) return order < 0;
    i = m, j = n;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

const std::vector<BuiltInModel>& built_in_models() {
  static const std::vector<BuiltInModel> all = [] {
    std::vector<BuiltInModel> models;
    for (const EmbeddedFile& file : embedded_models())
      models.push_back({std::string(file.name), file.text});
    std::sort(models.begin(), models.end(), [](const BuiltInModel& a, const BuiltInModel& b) {
      return natural_less(a.name, b.name);
    });
    return models;
  }();
  return all;
}

const BuiltInModel* find_built_in_model(std::string_view name) {
  for (const BuiltInModel& model : built_in_models())
    if (model.name == name) return &model;
  return nullptr;
}

}  // namespace tpsim
