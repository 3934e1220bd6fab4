// SPDX-License-Identifier: MIT
// Where the sizes of a model come from: built-in shapes, or a config.json.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/model_shape.hpp>

namespace tpsim::cli {

using tpsim::ModelShape;

/// Built-in shapes, from the published config.json of each model.
[[nodiscard]] const std::vector<ModelShape>& models();
[[nodiscard]] const ModelShape* find_model(const std::string& name);

/// A MODEL of the command line with what a reader might not expect about it.
struct NamedModel {
  ModelShape shape;
  std::vector<std::string> notes;
};

/// @param model      a built-in name, a folder with config.json, or a config.json
/// @param plan_file  a model plan that says what the config means; empty: what is built in
/// @throws UsageError for an unknown name, LayoutError for a config or a plan that cannot be used
[[nodiscard]] NamedModel open_model(const std::string& model, const std::string& plan_file = {});

}  // namespace tpsim::cli
