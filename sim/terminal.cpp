// SPDX-License-Identifier: MIT
#include "sim/terminal.hpp"

#include <langinfo.h>
#include <unistd.h>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tpsim::cli {

bool use_color(const Output& output) {
  if (output.color != Color::automatic) return output.color == Color::always;
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  if (set("NO_COLOR")) return false;
  if (set("CLICOLOR_FORCE") && std::string(std::getenv("CLICOLOR_FORCE")) != "0") return true;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && !(term != nullptr && std::string(term) == "dumb");
}

bool use_utf8() {
  std::setlocale(LC_CTYPE, "");
  return std::string(nl_langinfo(CODESET)) == "UTF-8";
}

bool show_progress(const Output& output) {
  return isatty(STDERR_FILENO) != 0 && !output.json && !output.quiet;
}

void annotate(const Output& output, const std::vector<LayerResult>& results) {
  const char* actions = std::getenv("GITHUB_ACTIONS");
  if (actions == nullptr || std::string(actions) != "true") return;
  if (!output.json) std::fputs(github_annotations(results).c_str(), stdout);
  const char* summary = std::getenv("GITHUB_STEP_SUMMARY");
  if (summary == nullptr || *summary == '\0') return;
  // Steps of one job add to one file. What is wrong with it is no verdict on the layers.
  std::ofstream file(summary, std::ios::app);
  file << github_summary(results) << "\n";
  if (!file.flush()) std::fprintf(stderr, "note: cannot add to the step's summary, %s\n", summary);
}

}  // namespace tpsim::cli
