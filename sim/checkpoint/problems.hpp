// SPDX-License-Identifier: MIT
// Collects the broken rules of one file, and shows untrusted text safely.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tpsim/core/error.hpp>

namespace tpsim::checkpoint_detail {

/// 'text' for a message: control characters escaped (a name must not drive the terminal), long
/// text cut.
[[nodiscard]] inline std::string shown(std::string_view text) {
  constexpr std::size_t longest = 120;
  std::string out = "'";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1])
                                          : static_cast<unsigned char>(0);
    // A UTF-8 sequence is never cut in the middle.
    if (i >= longest && (byte & 0xC0U) != 0x80U) return out + "...'";
    if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else if (byte == 0xC2 && next >= 0x80 && next < 0xA0)  // the C1 controls
      out += fmt::format("\\u{:04x}", next), ++i;
    else
      out += text[i];
  }
  return out + "'";
}

/// The broken rules found so far. A hostile file can break millions: the first ones are kept.
class Problems {
 public:
  void add(std::string rule, std::string message) {
    if (found_.size() < kept)
      found_.push_back({std::move(rule), std::move(message)});
    else
      ++more_;
  }
  /// Takes over what a part of the work threw.
  void add(const LayoutError& error) {
    for (const Violation& v : error.violations()) add(v.rule, error.subject() + ": " + v.message);
    if (error.violations().empty()) add("names", error.subject());
  }
  [[nodiscard]] bool empty() const { return found_.empty(); }

  void throw_if_any(const std::string& subject, const std::string& hint = {}) const {
    if (found_.empty()) return;
    std::vector<Violation> all = found_;
    if (more_ > 0) all.push_back({"file", fmt::format("and {} more broken rules", more_)});
    throw LayoutError(subject, std::move(all), hint);
  }

 private:
  static constexpr std::size_t kept = 16;
  std::vector<Violation> found_;
  std::size_t more_ = 0;
};

}  // namespace tpsim::checkpoint_detail
