// SPDX-License-Identifier: MIT
// Which part of a merged layer a tensor belongs to: by name ("k", "up") or by index (1).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <tpsim/core/shape.hpp>

namespace tpsim {

/// Converts from a name or an index, so that a call reads weight_loader(param, loaded, "k").
class ShardId {
 public:
  template <std::integral I>
  ShardId(I index) : id_(static_cast<Index>(index)) {}        // NOLINT(google-explicit-constructor)
  ShardId(const char* part) : id_(std::string(part)) {}       // NOLINT(google-explicit-constructor)
  ShardId(std::string_view part) : id_(std::string(part)) {}  // NOLINT(google-explicit-constructor)
  ShardId(const std::string& part) : id_(part) {}             // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is(std::string_view part_name, Index part_index) const {
    if (const auto* text = std::get_if<std::string>(&id_)) return *text == part_name;
    return std::get<Index>(id_) == part_index;
  }
  [[nodiscard]] std::string str() const {
    if (const auto* text = std::get_if<std::string>(&id_)) return "'" + *text + "'";
    return std::to_string(std::get<Index>(id_));
  }

 private:
  std::variant<Index, std::string> id_;
};

}  // namespace tpsim
