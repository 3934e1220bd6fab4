// SPDX-License-Identifier: MIT
// Lists as sentences have them.
#pragma once

#include <string>
#include <vector>

namespace tpsim {

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
