// SPDX-License-Identifier: MIT
// Reads the keys of a config.json and notes what is wrong with each.
#pragma once

#include <string>

#include <tpsim/core/shape.hpp>

#include "problems.hpp"
#include "strict_json.hpp"

namespace tpsim::checkpoint_detail {

// Two of these multiply to less than 2^49, so that bytes of a weight never overflow.
inline constexpr Index max_size = Index{1} << 24U;
inline constexpr Index max_layers = 100'000;

/// Reads keys of one config and notes what is wrong with each.
class ConfigReader {
 public:
  /// @param inside  "quantization_config." for the keys of that object
  ConfigReader(const nlohmann::json& json, Problems& problems, std::string inside = {})
      : json_(&json), problems_(&problems), inside_(std::move(inside)) {}

  /// The size, or 0 when it is absent or bad. `null` counts as absent, as in transformers.
  Index size(const char* key, bool required, Index limit = max_size) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      if (required) problem(fmt::format("{} is missing", key));
      return 0;
    }
    const bool integer = value->is_number_integer();
    const bool fits =
        integer && (value->is_number_unsigned()
                        ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(limit)
                        : false);
    if (!fits || value->get<Index>() < 1) {
      problem(fmt::format("{} is {}; legal: an integer from 1 to {}", key, text(*value), limit));
      return 0;
    }
    return value->get<Index>();
  }

  bool flag(const char* key, bool absent) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) {
      problem(fmt::format("{} is {}; legal: true, false", key, text(*value)));
      return absent;
    }
    return value->get<bool>();
  }

  std::string word(const char* key) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) {
      problem(fmt::format("{} is {}; legal: a string", key, text(*value)));
      return {};
    }
    return value->get<std::string>();
  }

  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }

  /// As gptq writes "no groups".
  [[nodiscard]] bool is_minus_one(const char* key) const {
    const nlohmann::json* value = find(key);
    return value != nullptr && value->is_number_integer() && *value == -1;
  }

  /// The object or list, or null when it is absent or something else, which is then a problem.
  const nlohmann::json* object(const char* key) {
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_object())
      problem(fmt::format("{} is {}; legal: an object", key, text(*value)));
    return value != nullptr && value->is_object() ? value : nullptr;
  }
  const nlohmann::json* list(const char* key) {
    const nlohmann::json* value = find(key);
    if (value != nullptr && !value->is_array())
      problem(fmt::format("{} is {}; legal: a list", key, text(*value)));
    return value != nullptr && value->is_array() ? value : nullptr;
  }
  void problem(const std::string& message) { problems_->add("config", inside_ + message); }

 private:
  [[nodiscard]] const nlohmann::json* find(const char* key) const {
    const auto it = json_->find(key);
    return it == json_->end() || it->is_null() ? nullptr : &*it;
  }
  static std::string text(const nlohmann::json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    return shown(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  const nlohmann::json* json_;
  Problems* problems_;
  std::string inside_;
};

}  // namespace tpsim::checkpoint_detail
