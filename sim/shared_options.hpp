// SPDX-License-Identifier: MIT
// Options that several commands have, each read one way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/command_line.hpp"
#include "sim/request.hpp"

namespace tpsim::cli {

/// --dtype, one of `known`; nothing when it is not given.
/// @param whose  begins the hint: "dtypes of a checkpoint are"
/// @throws UsageError
[[nodiscard]] std::optional<DType> parse_dtype(const Given& given, const std::vector<DType>& known,
                                               const std::string& whose);
/// --dtype of the numeric reading: f32, bf16 or f16; f64 is told to be its reference.
/// @throws UsageError
[[nodiscard]] std::optional<DType> parse_numeric_dtype(const Given& given);
/// --all-reduce, or rank. @throws UsageError
[[nodiscard]] ReduceOrder parse_all_reduce(const Given& given);
/// --seed, or 1. @throws UsageError
[[nodiscard]] std::uint64_t parse_seed(const Given& given);
/// --fault, or "". @throws UsageError for an unknown one
[[nodiscard]] std::string parse_fault(const Given& given);

}  // namespace tpsim::cli
