// SPDX-License-Identifier: MIT
// `tpsim synth MODEL --out DIR`: a checkpoint of random weights in the architecture's own format.
#pragma once

#include <string>
#include <vector>

#include <tpsim/checkpoint/safetensors_writer.hpp>

#include "sim/command_line.hpp"
#include "sim/request.hpp"
#include "sim/synth_config.hpp"

namespace tpsim::cli {

struct SynthResult {
  SynthModel model;
  std::vector<WrittenFile> files;
  Index tensors = 0, parameters = 0;
  Index tensor_bytes = 0;  ///< without headers
  Index bytes = 0;         ///< of all files
};

/// @throws UsageError
[[nodiscard]] SynthRequest parse_synth(const std::string& model, const Given& given);
/// Writes the checkpoint. @throws UsageError, LayoutError; then nothing is left of it
[[nodiscard]] SynthResult synth(const SynthRequest& request);

[[nodiscard]] std::string synth_text(const SynthRequest& request, const SynthResult& result,
                                     double elapsed_s);
[[nodiscard]] std::string synth_json(const SynthRequest& request, const SynthResult& result,
                                     double elapsed_s);

}  // namespace tpsim::cli
