// SPDX-License-Identifier: MIT
// sim/plans/*.json and sim/plans/models/*.json, written into a source file by the build.
#pragma once

#include <span>
#include <string_view>

namespace tpsim::checkpoint_detail {

struct EmbeddedFile {
  std::string_view name;  ///< without ".json"
  std::string_view text;
};

[[nodiscard]] std::span<const EmbeddedFile> embedded_plans();
[[nodiscard]] std::span<const EmbeddedFile> embedded_models();

}  // namespace tpsim::checkpoint_detail
