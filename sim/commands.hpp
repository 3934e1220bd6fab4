// SPDX-License-Identifier: MIT
// The commands. Each returns the exit status.
#pragma once

#include "sim/request.hpp"

namespace tpsim::cli {

[[nodiscard]] int run_request(const Request& request);
[[nodiscard]] int run_layer(const LayerRequest& request);
[[nodiscard]] int run_explain(const std::string& check, const Output& output);
[[nodiscard]] int run_list(const std::string& what, const Output& output);

/// Loads and runs the layer on the teaching numbers and prints what each rank holds and returns.
void print_toy(const LayerSpec& spec);

}  // namespace tpsim::cli
