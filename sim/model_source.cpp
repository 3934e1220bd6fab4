// SPDX-License-Identifier: MIT
#include "sim/model_source.hpp"

#include <vector>

#include <fmt/format.h>

#include <tpsim/checkpoint/built_in_models.hpp>

#include "sim/checkpoint/problems.hpp"
#include "sim/options.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

ModelSource find_model_source(const std::string& model) {
  namespace fs = std::filesystem;
  constexpr const char* what_a_model_is =
      "a model is a folder with config.json, a config.json, or a name of 'tpsim list models'";
  if (const BuiltInModel* built_in = find_built_in_model(model))
    return {model, std::string(built_in->config), model, std::nullopt};
  const std::string quoted = checkpoint_detail::shown(model);
  std::error_code ignored;
  const bool folder = fs::is_directory(model, ignored);
  if (!folder && !fs::exists(model, ignored)) {
    std::vector<std::string> names;
    for (const BuiltInModel& m : built_in_models()) names.push_back(m.name);
    const std::string near = nearest(model, names);
    throw UsageError(
        "unknown model " + quoted,
        (near.empty() ? "" : fmt::format("did you mean '{}'? ", near)) + what_a_model_is);
  }
  const fs::path file = folder ? fs::path(model) / "config.json" : fs::path(model);
  if (folder && !fs::exists(file, ignored))
    throw UsageError(fmt::format("folder {} has no config.json", quoted), what_a_model_is);
  ModelSource out{quoted.substr(1, quoted.size() - 2), read_config_text(file), file.string(),
                  std::nullopt};
  if (folder) out.folder = model;
  return out;
}

ModelPlan plan_of(const ModelSource& source, const std::string& plan_file) {
  return plan_file.empty() ? plan_for(source.config, source.file) : read_model_plan(plan_file);
}

BoundModel bound(const ModelSource& source, const std::string& plan_file, ConfigUse use) {
  return bind_model(plan_of(source, plan_file), source.config, source.file, use);
}

}  // namespace tpsim::cli
