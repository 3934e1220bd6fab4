// SPDX-License-Identifier: MIT
// The entries of `checks` in a JSON report.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tpsim/verify/report.hpp>

namespace tpsim::cli {

[[nodiscard]] nlohmann::ordered_json checks_json(const std::string& subject,
                                                 const std::vector<CheckResult>& checks);

}  // namespace tpsim::cli
