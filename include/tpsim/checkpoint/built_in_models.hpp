// SPDX-License-Identifier: MIT
// Configs of well-known models, so that their shapes need no file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim {

struct BuiltInModel {
  std::string name;         ///< "llama-3-8b"
  std::string_view config;  ///< the keys of the published config.json that decide shape and meaning
};

/// Sorted by name and size: llama-3-8b before llama-3-70b.
[[nodiscard]] const std::vector<BuiltInModel>& built_in_models();
/// Null when there is none of that name.
[[nodiscard]] const BuiltInModel* find_built_in_model(std::string_view name);

}  // namespace tpsim
