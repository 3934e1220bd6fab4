// SPDX-License-Identifier: MIT
// The options of the command: one table from which parsing, help and hints are made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/checkpoint/nearest.hpp"

namespace tpsim::cli {

struct Option {
  std::string_view group;     ///< of --help
  std::string_view name;      ///< without dashes
  std::string_view argument;  ///< "N"; empty for a switch
  std::string_view help;      ///< with the default in brackets
};

[[nodiscard]] const std::vector<Option>& options();
[[nodiscard]] std::vector<std::string> option_groups();

using checkpoint_detail::nearest;

[[nodiscard]] std::string help_text(std::string_view group);
[[nodiscard]] std::string short_help_text();

}  // namespace tpsim::cli
