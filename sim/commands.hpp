// SPDX-License-Identifier: MIT
// The commands. Each returns the exit status.
#pragma once

#include <tpsim/verify/fault_list.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {

[[nodiscard]] int run_request(const Request& request);
[[nodiscard]] int run_layer(const LayerRequest& request);
[[nodiscard]] int run_plan(const PlanRequest& request);
[[nodiscard]] int run_synth(const SynthRequest& request);
[[nodiscard]] int run_check(const CheckRequest& request);
[[nodiscard]] int run_model(const RunRequest& request);
[[nodiscard]] int run_explain(const std::string& check, const Output& output);
[[nodiscard]] int run_list(const std::string& what, const Output& output);

/// The readings that find the fault on a small shape of its first layer: it is run to see.
[[nodiscard]] std::vector<std::string> readings_that_find(const Fault& fault);

/// Loads and runs the layer on the teaching numbers and prints what each rank holds and returns;
/// with a fault, as that fault has it. @param fault  its name, or ""
void print_toy(const LayerSpec& spec, const std::string& fault);

}  // namespace tpsim::cli
