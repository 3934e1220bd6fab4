// SPDX-License-Identifier: MIT
// Reads the JSON of a safetensors header event by event, so that nothing is merged or lost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include <tpsim/checkpoint/safetensors.hpp>

#include "problems.hpp"

namespace tpsim::checkpoint_detail {

/// Bits of one element of a dtype that the format knows, else nothing.
[[nodiscard]] std::optional<Index> dtype_bits(std::string_view dtype);
[[nodiscard]] std::string known_dtypes();

/// SAX handler for nlohmann::json::sax_parse. Values of the wrong kind are reported and skipped, so
/// that one pass finds all broken rules; nesting beyond the format's three levels ends it.
class HeaderSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderSax(Problems& problems) : problems_(&problems) {}

  std::vector<SafetensorsEntry> entries;  ///< those that keep all rules of their own, in file order
  std::map<std::string, std::string> metadata;

  bool null() override { return scalar("null"); }
  bool boolean(bool /*value*/) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return integer(value, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return integer(value <= INT64_MAX ? std::optional<Index>(value) : std::nullopt,
                   std::to_string(value));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return integer(std::nullopt, text);
  }
  bool string(string_t& text) override;
  bool binary(binary_t& /*value*/) override { return scalar("binary data"); }
  bool start_object(std::size_t /*elements*/) override { return open(true); }
  bool start_array(std::size_t /*elements*/) override { return open(false); }
  bool key(string_t& text) override;
  bool end_object() override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override;

 private:
  enum class Level { root, top, metadata, entry, shape, offsets, ignored };

  [[nodiscard]] Level level() const { return levels_.empty() ? Level::root : levels_.back(); }
  bool open(bool object);
  bool scalar(const char* kind);
  bool integer(std::optional<Index> value, const std::string& text);
  void start_entry();
  void finish_entry();
  void finish_size();
  void problem(const char* rule, const std::string& message);
  [[nodiscard]] std::string subject() const;

  Problems* problems_;
  std::vector<Level> levels_;
  std::unordered_set<std::string> names_;
  SafetensorsEntry entry_;
  std::string field_;                     // the key read last inside an entry or the metadata
  std::unordered_set<std::string> seen_;  // keys of the present entry
  std::vector<Index> offsets_;
  bool good_ = true;  // the present entry keeps the rules so far
};

}  // namespace tpsim::checkpoint_detail
