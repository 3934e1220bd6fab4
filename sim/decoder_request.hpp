// SPDX-License-Identifier: MIT
// What a decoder layer, its attention or its norm consists of, from a model and from options.
#pragma once

#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

#include "sim/command_line.hpp"

namespace tpsim::cli {

/// Options that say so, and the layers that have each.
[[nodiscard]] const std::vector<std::pair<std::string, std::vector<std::string>>>&
decoder_layer_options();

/// The choices of one of the model's layers; sizes, and numbers that change no layout, stay.
/// spec.qkv is filled in.
void fill_from_model(LayerSpec& spec, const DecoderShape& model);
/// What the options say in place of it. @throws UsageError
void fill_from_options(LayerSpec& spec, const Given& given);

}  // namespace tpsim::cli
