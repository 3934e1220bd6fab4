// SPDX-License-Identifier: MIT
// The command line as words and options, before anything is known about their meaning.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tpsim::cli {

/// Option -> its argument, "" for a switch.
using Given = std::map<std::string, std::string>;

struct CommandLine {
  Given options;
  std::vector<std::string> words;  ///< what is neither an option nor its argument
};

/// Full names only, each option once, no empty argument. @throws UsageError
[[nodiscard]] CommandLine split_command_line(const std::vector<std::string>& arguments);

}  // namespace tpsim::cli
