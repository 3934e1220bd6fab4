// SPDX-License-Identifier: MIT
// How a config.json says that its linear weights are quantised.
#pragma once

#include <tpsim/core/quantization.hpp>

#include "config_reader.hpp"

namespace tpsim::checkpoint_detail {

/// `quantization_config`: gptq, awq, fp8 and mxfp4. Problems go to `problems`.
[[nodiscard]] Quantization read_quantization(ConfigReader& in, Problems& problems);

}  // namespace tpsim::checkpoint_detail
