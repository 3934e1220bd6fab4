// SPDX-License-Identifier: MIT
// Lists as sentences have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim {

/// The pieces of `text` between each `at`; one more than there are of them.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, std::string_view at) {
  std::vector<std::string> out;
  for (std::size_t end = text.find(at); end != std::string_view::npos; end = text.find(at)) {
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(end + at.size());
  }
  out.emplace_back(text);
  return out;
}

/// "1", "1 or 2", "1, 2 or 4".
[[nodiscard]] inline std::string or_list(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out;
}
[[nodiscard]] inline std::string or_list(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int n : numbers) words.push_back(std::to_string(n));
  return or_list(words);
}

}  // namespace tpsim
