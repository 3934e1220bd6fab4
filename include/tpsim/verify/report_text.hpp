// SPDX-License-Identifier: MIT
// A report as plain text, for programs that verify their own layers.
#pragma once

#include <tpsim/verify/report.hpp>

namespace tpsim {

/// One line a check, every finding below it with its likely cause and repair, and the verdict.
[[nodiscard]] inline std::string text(const Report& report) {
  const auto padded = [](std::string_view word, std::size_t width) {
    std::string out(word);
    out.resize(std::max(width, out.size() + 1), ' ');
    return out;
  };
  std::string out = report.subject + ", tp " + std::to_string(report.tp) + "\n";
  Index passed = 0, failed = 0, skipped = 0;
  for (const CheckResult& check : report.checks) {
    const bool fails = check.result == Outcome::fail;
    ++(fails ? failed : check.result == Outcome::pass ? passed : skipped);
    out += (fails                           ? "  FAIL  "
            : check.result == Outcome::pass ? "  ok    "
                                            : "  skip  ") +
           padded(check.id, 12) + padded(name(check.reading), 8) + check.message + "\n";
    for (std::size_t i = 0; i < check.findings.size(); ++i) {
      const Finding& f = check.findings[i];
      if (f.message != check.message) out += "          " + f.message + "\n";
      const bool last = i + 1 == check.findings.size() || check.findings[i + 1].cause != f.cause;
      if (!last) continue;
      if (!f.cause.empty()) out += "          cause: " + f.cause + "\n";
      if (!f.repair.empty()) out += "          repair: " + f.repair + "\n";
    }
  }
  const std::string all = std::to_string(passed + failed) + " checks";
  out += failed > 0   ? std::to_string(failed) + " of " + all + " failed\n"
         : passed > 0 ? "verified: " + all + " passed\n"
                      : "nothing was compared\n";
  if (skipped > 0 && failed == 0 && passed > 0)
    out.insert(out.size() - 1, ", " + std::to_string(skipped) + " had nothing to compare");
  return out;
}

}  // namespace tpsim
