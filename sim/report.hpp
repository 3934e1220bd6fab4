// SPDX-License-Identifier: MIT
// Writers: one report, several forms.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/report.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {

/// A verified layer with everything that its report needs.
struct LayerResult {
  LayerSpec spec;
  Report report;
  double elapsed_s = 0;
  std::vector<std::string> smallest;  ///< command that repeats the smallest failing case; or empty
  LayerSpec smallest_spec;
  int tests = 0, shrinks = 0;             ///< of the search for it
  std::vector<std::string> notes;         ///< what a reader might not expect, a line each
  std::vector<std::string> command = {};  ///< that asked for it; empty: the check of the layer
};

/// For a fault that no check saw: "the fault NAME changes nothing at this shape"; empty otherwise.
[[nodiscard]] std::string unseen_fault(const LayerRequest& request, const Report& report);

/// @param color  ANSI colours; @param utf8  box characters beyond ASCII
[[nodiscard]] std::string text_report(const LayerRequest& request, const LayerResult& result,
                                      bool color, bool utf8);
[[nodiscard]] std::string shard_table(const TensorReport& tensor, bool utf8, bool verbose);
[[nodiscard]] std::string json_report(const LayerRequest& request,
                                      const std::vector<LayerResult>& results, double elapsed_s);
[[nodiscard]] std::string html_report(const LayerRequest& request,
                                      const std::vector<LayerResult>& results);
[[nodiscard]] std::string junit_report(const LayerRequest& request,
                                       const std::vector<LayerResult>& results);
/// GitHub workflow commands, one for each failed layer.
[[nodiscard]] std::string github_annotations(const std::vector<LayerResult>& results);
/// A Markdown table with a row for each layer and tp.
[[nodiscard]] std::string github_summary(const std::vector<LayerResult>& results);

/// `error:` and `hint:` on stderr, or with `json` one object on stdout.
void print_error(bool json, const std::string& message, const std::vector<Violation>& violations,
                 const std::string& hint);
/// Asked before the work starts, so that nothing is reported twice. @throws LayoutError
void require_writable(const std::string& path);
/// Writes to a temporary name in the same folder and renames. @throws LayoutError
void write_file(const std::string& path, const std::string& text);

}  // namespace tpsim::cli
