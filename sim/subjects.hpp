// SPDX-License-Identifier: MIT
// Layers as the verifier takes them. The one place that instantiates every layer on every backend.
#pragma once

#include <memory>
#include <string>

#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim::cli {

/// The layer of `spec`, with this fault in it unless it is "". @throws LayoutError (illegal shape)
[[nodiscard]] std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault);

}  // namespace tpsim::cli
