// SPDX-License-Identifier: MIT
// Reports for GitHub Actions: annotations, and a table for the page of the run.
#include <algorithm>

#include <fmt/format.h>

#include "sim/report.hpp"

namespace tpsim::cli {
namespace {

// GitHub's workflow commands read %, CR, LF, and in properties : and , as syntax.
std::string workflow_text(const std::string& text, bool property) {
  std::string out;
  for (const char c : text) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

// A cell of a table in GitHub's Markdown: its syntax and HTML are text.
std::string cell_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r')
      out += ' ';
    else if (std::string_view("&<>").find(c) != std::string_view::npos)
      out += fmt::format("&#{};", static_cast<int>(c));
    else if (std::string_view("\\`*_{}[]()#+-!|~@").find(c) != std::string_view::npos)
      out += std::string("\\") + c;
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

const std::string& words_of(const CheckResult& c) {
  return c.findings.empty() ? c.message : c.findings.front().message;
}

}  // namespace

std::string github_annotations(const std::vector<LayerResult>& results) {
  std::string out;
  for (const LayerResult& result : results)
    for (const CheckResult& c : result.report.checks)
      if (c.result == Outcome::fail) {
        out += fmt::format(
            "::error title={}::{}\n",
            workflow_text(fmt::format("{} tp {} {}", result.report.subject, result.report.tp, c.id),
                          true),
            workflow_text(words_of(c), false));
        break;
      }
  return out;
}

std::string github_summary(const std::vector<LayerResult>& results) {
  std::string out =
      "| subject | tp | verdict | passed | failed | skipped | first finding |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const LayerResult& result : results) {
    const std::vector<CheckResult>& checks = result.report.checks;
    const auto count = [&](Outcome outcome) {
      return std::count_if(checks.begin(), checks.end(),
                           [&](const CheckResult& c) { return c.result == outcome; });
    };
    const auto failed = std::find_if(checks.begin(), checks.end(), [](const CheckResult& c) {
      return c.result == Outcome::fail;
    });
    const auto passed = count(Outcome::pass);
    const char* verdict = failed != checks.end() ? "**fail**" : passed > 0 ? "pass" : "skip";
    const std::string finding =
        failed == checks.end() ? "" : cell_text(std::string(failed->id) + ": " + words_of(*failed));
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", cell_text(result.report.subject),
                       result.report.tp, verdict, passed, count(Outcome::fail),
                       count(Outcome::skip), finding);
  }
  return out;
}

}  // namespace tpsim::cli
