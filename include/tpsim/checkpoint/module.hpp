// SPDX-License-Identifier: MIT
// The weights of one module of a checkpoint: a single linear layer, attention's q/k/v, or an MLP.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/checkpoint.hpp>

namespace tpsim {

enum class ModuleKind {
  linear,  ///< one weight [out, in], perhaps a bias [out]
  qkv,     ///< q_proj, k_proj, v_proj
  mlp      ///< gate_proj, up_proj, down_proj
};

[[nodiscard]] std::string_view name(ModuleKind kind);

/// One `nn.Linear` as stored.
struct LinearWeights {
  std::string name;                      ///< the last path component: "q_proj"
  CheckpointTensor weight;               ///< [out, in]
  std::optional<CheckpointTensor> bias;  ///< [out]
  std::optional<int> tp_dim;             ///< the dimension that the plan cuts, if any
};

struct ModuleWeights {
  std::string name;  ///< the module path: "model.layers.0.self_attn"
  ModuleKind kind = ModuleKind::linear;
  std::vector<LinearWeights> linears;  ///< in the order of the kind's comment
  /// The linear layer of that name. @throws LayoutError when there is none
  [[nodiscard]] const LinearWeights& linear(std::string_view linear_name) const;
};

/// Looks up the module that owns the tensors: `model.layers.0.self_attn` gives q, k and v;
/// `model.layers.0.mlp` gate, up and down; `model.layers.0.self_attn.o_proj` or `lm_head` one
/// layer. Shapes and biases must be those that the plan with config.json says. Opens only the files
/// with these tensors.
/// @throws LayoutError with every broken rule, and for a tensor that holds several parts (a fused
///   qkv); an unknown module gets the nearest name as hint
[[nodiscard]] ModuleWeights read_module(const Checkpoint& checkpoint, std::string_view module);

}  // namespace tpsim
