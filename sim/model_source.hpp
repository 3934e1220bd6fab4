// SPDX-License-Identifier: MIT
// A MODEL of the command line: where its config is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <tpsim/checkpoint/bound_model.hpp>

namespace tpsim::cli {

struct ModelSource {
  std::string name;    ///< as given, safe to print
  std::string config;  ///< the text of its config.json
  std::string file;    ///< of the config, in messages; the name of a built-in model
  std::optional<std::filesystem::path> folder;  ///< that holds it, when a folder was given
};

/// @param model  a built-in name, a folder with config.json, or a config.json
/// @throws UsageError for an unknown name, LayoutError for a file that is no regular one, or too
///   large
[[nodiscard]] ModelSource find_model_source(const std::string& model);

/// The plan in `plan_file`, or the built-in one of the config's model_type when that is "".
/// @throws LayoutError
[[nodiscard]] ModelPlan plan_of(const ModelSource& source, const std::string& plan_file);
/// The config with that plan: the one way in which commands read it. @throws LayoutError
[[nodiscard]] BoundModel bound(const ModelSource& source, const std::string& plan_file,
                               ConfigUse use = ConfigUse::weights);

}  // namespace tpsim::cli
