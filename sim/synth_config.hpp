// SPDX-License-Identifier: MIT
// The model that `tpsim synth` writes: a config with some of its sizes changed.
#pragma once

#include <string>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>

#include "sim/request.hpp"

namespace tpsim::cli {

struct SynthModel {
  BoundModel bound;
  std::string config;  ///< text of config.json
  DType dtype = DType::bf16;
  std::vector<std::string> notes;  ///< what a reader might not expect
};

/// The options that change a size.
[[nodiscard]] const std::vector<std::string>& synth_sizes();

/// The request's config with its sizes and dtype; all other keys are kept, but for those that
/// follow from a size: kv heads from heads, the list of layer types from the layers, token ids from
/// the vocabulary.
/// @throws UsageError for a size that the architecture does not have, LayoutError for a config that
///   cannot be used
[[nodiscard]] SynthModel synth_model(const SynthRequest& request);

}  // namespace tpsim::cli
