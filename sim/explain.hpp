// SPDX-License-Identifier: MIT
// What each check means, for people who meet its id in a report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tpsim::cli {

struct CheckText {
  std::string_view id, summary, text;
  std::string table = {};  ///< lines below the text, as they are; may be empty
};

/// In the order in which reports list them.
[[nodiscard]] const std::vector<CheckText>& check_texts();

}  // namespace tpsim::cli
