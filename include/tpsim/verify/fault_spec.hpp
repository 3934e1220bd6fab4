// SPDX-License-Identifier: MIT
// The shape on which a fault shows.
#pragma once

#include <string>
#include <utility>

#include <tpsim/verify/layer_spec.hpp>

namespace tpsim {
namespace detail {

/// The order that a blocked fused tensor has: "q:kv*g*d + k:kv*d + v:kv*m".
[[nodiscard]] inline std::string blocked_layout(const LayerSpec& s) {
  if (s.layer == "qkv") return "q:kv*g*d + k:kv*d + v:kv*m";
  std::string out;
  for (std::size_t k = 0; k < s.parts.size(); ++k)
    out += (k > 0 ? " + " : "") + s.parts[k].name + ":n" + std::to_string(k);
  return out;
}

}  // namespace detail

/// `spec` with what `fault` is about: its row bias, or its one fused tensor on disk.
[[nodiscard]] inline LayerSpec with_parts_of_fault(LayerSpec spec, const std::string& fault) {
  if (fault == "bias-on-every-rank") spec.bias = true;
  if (fault == "fused-cut-as-one" && spec.disk.empty()) spec.disk = detail::blocked_layout(spec);
  return spec;
}

/// The same, and with sizes that show the fault: where each rank has kv heads of its own, tp / 2 of
/// them are shared instead. This needs an even tp of 4 or more, and sizes that neither a checkpoint
/// nor a layout has fixed; otherwise they stay as they are.
[[nodiscard]] inline LayerSpec spec_for_fault(LayerSpec spec, const std::string& fault) {
  spec = with_parts_of_fault(std::move(spec), fault);
  const bool own_kv_heads = spec.tp >= 4 && spec.tp % 2 == 0 && spec.qkv.kv_heads % spec.tp == 0 &&
                            spec.qkv.heads % (spec.tp / 2) == 0;
  if (fault == "kv-head-modulo" && own_kv_heads && spec.values.empty() && spec.disk.empty())
    spec.qkv.kv_heads = spec.tp / 2;
  return spec;
}

}  // namespace tpsim
