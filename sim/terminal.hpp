// SPDX-License-Identifier: MIT
// What surrounds a command's report: colour, characters, progress, annotations.
#pragma once

#include <string>
#include <vector>

#include "sim/report.hpp"

namespace tpsim::cli {

/// --color, then the environment (NO_COLOR, CLICOLOR_FORCE), then whether stdout is a terminal.
[[nodiscard]] bool use_color(const Output& output);
[[nodiscard]] bool use_utf8();
/// Is there someone to see on stderr that it goes on?
[[nodiscard]] bool show_progress(const Output& output);
/// Under GitHub Actions, an annotation for each failed result (none beside JSON), and a table on
/// the page of the run ($GITHUB_STEP_SUMMARY).
void annotate(const Output& output, const std::vector<LayerResult>& results);

/// Texts in the colours of verdicts, or as they are.
struct Paint {
  bool on = false;
  [[nodiscard]] std::string pass(const std::string& text) const { return in("32", text); }
  [[nodiscard]] std::string fail(const std::string& text) const { return in("31;1", text); }
  [[nodiscard]] std::string skip(const std::string& text) const { return in("33", text); }
  [[nodiscard]] std::string as(Outcome outcome, const std::string& text) const {
    return outcome == Outcome::pass   ? pass(text)
           : outcome == Outcome::fail ? fail(text)
                                      : skip(text);
  }

 private:
  [[nodiscard]] std::string in(const char* code, const std::string& text) const {
    return on ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
  }
};

}  // namespace tpsim::cli
