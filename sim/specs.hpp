// SPDX-License-Identifier: MIT
// Layer specs from the teaching numbers and from checkpoints.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim::cli {

/// The teaching example of a layer, with its numbers. tp is left at 1.
[[nodiscard]] LayerSpec toy_spec(const std::string& layer);

/// `in` and `out` of the plain layers from the model's sizes: column is an up projection, row the
/// attention's output projection, merged gate and up, replicated a square one.
void fill_plain_sizes(LayerSpec& spec);

/// Sizes, biases and numbers of a module of a Hugging Face checkpoint.
/// @returns which layer the plan of the architecture makes of one linear module: "row", "column"
/// or,
///   where it says neither, ""
/// @throws LayoutError, UsageError (the module is no such layer)
std::string fill_from_checkpoint(LayerSpec& spec, const std::string& directory,
                                 const std::string& module);

/// Name, rows and columns of each weight.
[[nodiscard]] std::vector<std::tuple<std::string, Index, Index>> weight_sizes(
    const LayerSpec& spec);

}  // namespace tpsim::cli
