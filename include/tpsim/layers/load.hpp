// SPDX-License-Identifier: MIT
// Hands a tensor of the checkpoint to a layer's weight_loader, as a model file does.
#pragma once

#include <string>

#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layout/row_layout.hpp>

namespace tpsim {

/// Its weight or its bias: the shard id for a separate part, the layout for a fused tensor, nothing
/// for a plain layer.
/// @throws LayoutError (names) for a bias that the layer does not have, and as the weight_loader
template <class Layer>
void load_tensor(Layer& layer, bool is_bias, const FullTensor& loaded, const RowLayout& layout) {
  const auto load = [&](auto& param) {
    if constexpr (requires { layer.weight_loader(param, loaded, layout); }) {
      if (layout.parts().size() == 1)
        layer.weight_loader(param, loaded, layout.parts()[0].label);
      else
        layer.weight_loader(param, loaded, layout);
    } else {
      layer.weight_loader(param, loaded);
    }
  };
  const auto unexpected = [&](const char* what) {
    throw LayoutError(std::string("the layer has no ") + what + " for " + loaded.name(),
                      {{"names", "unexpected tensor"}});
  };
  if (is_bias) {
    if constexpr (requires { *layer.bias; }) {
      if (layer.bias) return load(*layer.bias);
    }
    unexpected("bias");
  }
  if constexpr (requires { *layer.weight; }) {
    if (layer.weight) return load(*layer.weight);
    unexpected("weight");
  } else {
    load(layer.weight);
  }
}

/// Every parameter of a layer, under PREFIXweight and PREFIXbias.
template <class Layer, class F>
void for_each_param(const std::string& prefix, Layer& layer, F&& f) {
  if constexpr (requires { *layer.weight; }) {
    if (layer.weight) f(prefix + "weight", *layer.weight);
  } else {
    f(prefix + "weight", layer.weight);
  }
  if constexpr (requires { *layer.bias; })
    if (layer.bias) f(prefix + "bias", *layer.bias);
}

}  // namespace tpsim
