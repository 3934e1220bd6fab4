// SPDX-License-Identifier: MIT
// JSON of small untrusted files: duplicate keys and deep nesting are errors.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tpsim::checkpoint_detail {

/// Parses one JSON object. @throws LayoutError naming the file: no JSON, a key twice in one object,
/// nesting over 32 levels, no object
[[nodiscard]] nlohmann::json parse_strict_json(std::string_view text, const std::string& file_name);

}  // namespace tpsim::checkpoint_detail
