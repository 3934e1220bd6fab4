// SPDX-License-Identifier: MIT
// `--backend cuda`: whether there is a device, and the numeric reading on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/verify/numeric_options.hpp>

#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// --backend, or "eigen". @throws UsageError for an unknown one, and for "cuda" when this program
/// is
///   built without it or there is no device
[[nodiscard]] std::string parse_backend(const Given& given);
/// --tf32. @param dtype  of the numeric reading; nothing: what the checkpoint has
/// @throws UsageError where no product could use it: another backend, another dtype than f32
[[nodiscard]] bool parse_tf32(const Given& given, const std::string& backend,
                              std::optional<DType> dtype);
/// @throws UsageError when `dtype` has no use for --tf32
void require_tf32_applies(DType dtype);
/// @throws UsageError for a fault that lives in the numbers of the CPU's backend
void require_fault_runs(const std::string& fault, const std::string& backend);
/// The device that computes: "NVIDIA H200, compute capability 9.0".
[[nodiscard]] std::string cuda_device();
/// "backend cuda on NVIDIA H200, compute capability 9.0", then "tf32" when it is on: for the lines
/// of a report. Nothing for eigen.
[[nodiscard]] std::vector<std::string> backend_texts(const std::string& backend, bool tf32);
/// Null for "eigen".
[[nodiscard]] std::unique_ptr<NumericEngine> engine_of(const std::string& backend, bool tf32);

}  // namespace tpsim::cli
