// SPDX-License-Identifier: MIT
// Configs with some keys changed, plans, and lists of tensors for tests of model plans.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <tpsim/checkpoint/safetensors.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test {

inline std::string file_text(const std::filesystem::path& file) {
  std::ifstream in(file);
  CAPTURE(file);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Every folder of tests/data with a config.json, sorted.
inline std::vector<std::filesystem::path> checkpoint_folders() {
  std::vector<std::filesystem::path> out;
  for (const auto& each : std::filesystem::directory_iterator(test_data("")))
    if (std::filesystem::exists(each.path() / "config.json")) out.push_back(each.path());
  std::sort(out.begin(), out.end());
  REQUIRE(out.size() >= 2);
  return out;
}

/// The object with the keys of `more` instead of its own.
inline std::string edited(std::string_view object, std::string_view more) {
  nlohmann::json out = nlohmann::json::parse(object);
  const nlohmann::json changes = nlohmann::json::parse(more);
  for (const auto& [key, value] : changes.items()) out[key] = value;
  return out.dump();
}
/// As RFC 7396 merges: objects inside it too, and null removes a key.
inline std::string patched(std::string_view object, std::string_view more) {
  nlohmann::json out = nlohmann::json::parse(object);
  out.merge_patch(nlohmann::json::parse(more));
  return out.dump();
}

/// The text of a built-in plan.
inline std::string plan_text(const std::string& architecture) {
  return file_text(std::filesystem::path(TPSIM_SOURCE_DIR) / "sim/plans" /
                   (architecture + ".json"));
}

/// The plan that README adds.
inline std::string readme_plan() {
  const std::string text = file_text(std::filesystem::path(TPSIM_SOURCE_DIR) / "README.md");
  const std::size_t section = text.find("\n## Adding an architecture");
  REQUIRE(section != std::string::npos);
  const std::size_t begin = text.find("```json\n", section) + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

inline SafetensorsEntry entry(const std::string& name, const std::vector<Index>& dims,
                              const std::string& dtype = "F32") {
  return {name, dtype, dims, 0, 0};
}

}  // namespace tpsim::test
