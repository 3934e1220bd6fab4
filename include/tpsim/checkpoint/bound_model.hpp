// SPDX-License-Identifier: MIT
// A model plan with the numbers of a config: the decoder's shape, and every tensor on disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/model_plan.hpp>
#include <tpsim/core/quantization.hpp>
#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layout/plan.hpp>

namespace tpsim {

/// Layers that are alike in everything.
struct LayerKind {
  DecoderShape shape;
  /// Disk names without the layer's prefix; parameters and logical tensors as DecoderLayer and its
  /// full() name them without one: self_attn.qkv_proj.weight, self_attn.q_proj.weight.
  BoundPlan plan;
};

/// One tensor that the checkpoint must have.
struct ModelTensor {
  std::string name;   ///< "model.layers.3.self_attn.q_proj.weight"
  std::string param;  ///< what it fills: "layers.3.self_attn.qkv_proj.weight"
  Shape shape;        ///< on disk
  std::shared_ptr<const BoundTensor> bound;  ///< its row order and parts; shared by the layers
  std::optional<Index> layer;
  /// May be absent, and nothing reads it: the head of a tied model.
  bool optional = false;

  /// "layers.3."; "" outside the layers.
  [[nodiscard]] std::string prefix() const {
    return layer ? "layers." + std::to_string(*layer) + "." : "";
  }
  /// The logical tensor of a part, as CausalLM::full() names it:
  /// "layers.3.self_attn.q_proj.weight".
  [[nodiscard]] std::string logical(std::size_t part) const {
    return prefix() + bound->parts[part].tensor;
  }
};

struct BoundModel {
  std::string architecture;
  CausalLMShape shape;
  Axes axes;
  std::vector<LayerKind> kinds;
  std::vector<std::size_t> kind_of_layer;  ///< [layer]: index of `kinds`
  std::vector<ModelTensor> tensors;        ///< embedding, layers in order, norm, head
  std::vector<std::string> ignored;        ///< names that mean nothing; {} is a layer
  std::optional<DType> dtype;              ///< `dtype` or `torch_dtype`
  Quantization quantization;               ///< of ConfigUse::sizes alone
  std::vector<std::string> notes;          ///< what a reader might not expect
};

/// What a config is read for.
enum class ConfigUse : std::uint8_t {
  weights,  ///< tensors are loaded: quantised ones have no plan
  sizes,    ///< sizes alone: `quantization_config` is read, and the tensors are those before it
};

/// The text of a config.json. @throws LayoutError when the file cannot be read, or is over 16 MiB
[[nodiscard]] std::string read_config_text(const std::filesystem::path& file);

/// @throws LayoutError with everything that is wrong with the config: a model_type that the plan
///   does not serve, keys that are missing, mistyped, out of range or contradict each other, and
///   what is not supported (an activation, a rope scaling, quantised weights)
[[nodiscard]] BoundModel bind_model(const ModelPlan& plan, std::string_view config_json,
                                    const std::string& file_name,
                                    ConfigUse use = ConfigUse::weights);
/// With the built-in plan of its model_type. @throws LayoutError as plan_for and bind_model
[[nodiscard]] BoundModel bind_model(std::string_view config_json, const std::string& file_name,
                                    ConfigUse use = ConfigUse::weights);

}  // namespace tpsim
