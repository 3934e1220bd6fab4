// SPDX-License-Identifier: MIT
// A change of the code with a name: where it can be made, what it needs to show, the change itself.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <tpsim/verify/variation.hpp>

namespace tpsim {

struct NamedVariation {
  std::string name;                 ///< "kv-head-modulo"
  std::vector<std::string> layers;  ///< that it can be put into
  std::string summary;              ///< what the code does, in one line
  std::function<Variation(const LayerSpec&)> variation;
  /// Switches on what the change is about (a bias, a fused tensor on disk); sizes stay. Null:
  /// nothing to do.
  std::function<LayerSpec(LayerSpec)> needs = {};
  /// Changes sizes that would hide it, where they are free. Null: it shows at any.
  std::function<LayerSpec(LayerSpec)> shows = {};

  [[nodiscard]] bool applies_to(const std::string& layer) const {
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }
};

/// A change that makes the code wrong.
using Fault = NamedVariation;

namespace detail {

/// A variation that is the same for every spec.
[[nodiscard]] inline std::function<Variation(const LayerSpec&)> always(Variation v) {
  return [v = std::move(v)](const LayerSpec&) { return v; };
}
[[nodiscard]] inline std::function<Variation(const LayerSpec&)> changes(LayerChange change) {
  return always({.layer = change});
}
template <class Comm, class... Args>
[[nodiscard]] std::function<Variation(const LayerSpec&)> talks_through(Args... args) {
  return always({.between = [args...](Communicator& world) -> std::unique_ptr<Communicator> {
    return std::make_unique<Comm>(world, args...);
  }});
}

/// The layer adds a bias itself.
[[nodiscard]] inline LayerSpec with_bias(LayerSpec s) {
  s.bias = s.reduce_results = true;
  s.skip_bias_add = false;
  return s;
}
/// The layer calls a collective: its output is gathered, or summed.
[[nodiscard]] inline LayerSpec with_collective(LayerSpec s) {
  s.gather_output = s.layer == "column" || s.layer == "merged";
  if (s.gather_output) s.skip_bias_add = false;
  return s;
}
/// A row layer with the whole input on every rank, and no sum left to the caller.
[[nodiscard]] inline LayerSpec with_whole_input(LayerSpec s) {
  if (s.layer != "row") return s;
  s.input_is_parallel = false;
  s.reduce_results = true;
  return s;
}
[[nodiscard]] inline LayerSpec with_square_weight(LayerSpec s) {
  if (s.values.empty()) s.out = s.in;
  return s;
}
/// The order of a blocked fused tensor: "q:kv*g*d + k:kv*d + v:kv*m".
[[nodiscard]] inline std::string blocked_layout(const LayerSpec& s) {
  if (s.layer == "qkv") return "q:kv*g*d + k:kv*d + v:kv*m";
  const std::vector<MergedPart> parts = s.layer == "mlp" ? gate_up(s.intermediate) : s.parts;
  std::string out;
  for (std::size_t k = 0; k < parts.size(); ++k)
    out += (k > 0 ? " + " : "") + parts[k].name + ":n" + std::to_string(k);
  return out;
}
[[nodiscard]] inline LayerSpec with_fused_tensor(LayerSpec s) {
  if (s.disk.empty()) s.disk = blocked_layout(s);
  return s;
}

}  // namespace detail
}  // namespace tpsim
