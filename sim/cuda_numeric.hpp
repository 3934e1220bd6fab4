// SPDX-License-Identifier: MIT
// `--backend cuda`: whether there is a device, and the numeric reading on it.
#pragma once

#include <memory>
#include <string>

#include <tpsim/verify/numeric_options.hpp>

#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// --backend, or "eigen". @throws UsageError for an unknown one, and for "cuda" when this program
/// is
///   built without it or there is no device
[[nodiscard]] std::string parse_backend(const Given& given);
/// @throws UsageError for a fault that lives in the numbers of the CPU's backend
void require_fault_runs(const std::string& fault, const std::string& backend);
/// The device that computes: "NVIDIA H200, compute capability 9.0".
[[nodiscard]] std::string cuda_device();
/// " on NVIDIA H200, compute capability 9.0" of cuda, else nothing: for the lines of a report.
[[nodiscard]] std::string on_device_text(const std::string& backend);
/// Null for "eigen".
[[nodiscard]] std::unique_ptr<NumericEngine> engine_of(const std::string& backend);

}  // namespace tpsim::cli
