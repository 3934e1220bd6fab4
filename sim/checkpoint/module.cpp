// SPDX-License-Identifier: MIT
// The weights of one module of a checkpoint.
#include <tpsim/checkpoint/module.hpp>

#include <algorithm>
#include <utility>

#include "nearest.hpp"
#include "problems.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

/// The plan's tensor of that name, or null.
const ModelTensor* planned(const Checkpoint& checkpoint, std::string_view name) {
  const std::vector<ModelTensor>& all = checkpoint.model().tensors;
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const ModelTensor& t) { return t.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::string last_component(std::string_view module) {
  return std::string(module.substr(module.rfind('.') + 1));  // npos + 1 is 0
}

const std::vector<std::string> qkv_parts{"q_proj", "k_proj", "v_proj"};
const std::vector<std::string> mlp_parts{"gate_proj", "up_proj", "down_proj"};

bool has_any(const Checkpoint& checkpoint, const std::string& module,
             const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return !checkpoint.children(module + "." + part).empty();
  });
}

std::optional<ModuleKind> kind_of(const Checkpoint& checkpoint, const std::string& module) {
  if (has_any(checkpoint, module, qkv_parts)) return ModuleKind::qkv;
  if (has_any(checkpoint, module, mlp_parts)) return ModuleKind::mlp;
  if (checkpoint.has(module + ".weight")) return ModuleKind::linear;
  return std::nullopt;
}

/// Reads one linear layer and notes what does not fit the config.
class LinearReader {
 public:
  LinearReader(const Checkpoint& checkpoint, Problems& problems)
      : checkpoint_(&checkpoint), problems_(&problems) {}

  LinearWeights read(const std::string& path) {
    LinearWeights linear;
    linear.name = last_component(path);
    const std::string weight = path + ".weight", bias = path + ".bias";
    const ModelTensor* want = planned(*checkpoint_, weight);
    const bool wants_bias = planned(*checkpoint_, bias) != nullptr;
    if (want != nullptr) linear.tp_dim = want->bound->tp_dim;
    if (want != nullptr && want->bound->parts.size() > 1)
      problem("names", weight, "holds several parts, which no single linear layer has");
    if (auto found = tensor(weight, true)) {
      if (found->shape.rank() != 2)
        problem("shape", weight, "is " + found->shape.str() + "; a linear weight is [out, in]");
      else if (want != nullptr && found->shape != want->shape)
        problem("shape", weight,
                fmt::format("is {}; config.json says {}", found->shape.str(), want->shape.str()));
      linear.weight = std::move(*found);
    }
    const bool has_bias = checkpoint_->has(bias);
    if (want != nullptr && has_bias && !wants_bias)
      problem("names", bias, "exists, but by config.json there is no bias here");
    if (auto found = tensor(bias, wants_bias)) {
      const Shape shape(linear.weight.shape.rows());
      if (linear.weight.values && found->shape != shape)
        problem("shape", bias,
                "is " + found->shape.str() + "; it must be " + shape.str() +
                    " like the rows of its weight");
      linear.bias = std::move(*found);
    }
    return linear;
  }

 private:
  std::optional<CheckpointTensor> tensor(const std::string& name, bool required) {
    if (!checkpoint_->has(name)) {
      if (required) problem("names", name, "is missing");
      return std::nullopt;
    }
    try {
      return checkpoint_->tensor(name);
    } catch (const LayoutError& error) {
      problems_->add(error);
      return std::nullopt;
    }
  }
  void problem(const char* rule, const std::string& tensor, const std::string& message) {
    problems_->add(rule, shown(tensor) + " " + message);
  }

  const Checkpoint* checkpoint_;
  Problems* problems_;
};

[[noreturn]] void refuse_unknown(const Checkpoint& checkpoint, const std::string& module) {
  const std::string where = " in " + shown(checkpoint.directory().string());
  if (checkpoint.has(module))
    throw LayoutError(shown(module) + " is a tensor, not a module" + where, {},
                      "its module is " + shown(module.substr(0, module.rfind('.'))));
  if (module == "lm_head" && checkpoint.model().shape.tied)
    throw LayoutError("no module 'lm_head'" + where, {},
                      "tie_word_embeddings is true: use 'model.embed_tokens'");
  std::vector<std::string> usable;
  for (const std::string& candidate : checkpoint.modules())
    if (kind_of(checkpoint, candidate)) usable.push_back(candidate);
  if (checkpoint.children(module).empty()) {
    const std::string near = nearest(module, usable);
    throw LayoutError("no module " + shown(module) + where, {},
                      near.empty() ? usable.empty() ? "" : "for example " + shown(usable.front())
                                   : "did you mean " + shown(near) + "?");
  }
  std::string below;
  for (const std::string& candidate : usable)
    if (candidate.starts_with(module + ".") && below.size() < 300)
      below += (below.empty() ? "" : ", ") + candidate;
  throw LayoutError(shown(module) + " is no linear layer, attention or MLP" + where, {},
                    below.empty() ? "" : "modules below it: " + below);
}

}  // namespace

std::string_view name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::qkv:
      return "qkv";
    case ModuleKind::mlp:
      return "mlp";
    default:
      return "linear";
  }
}

const LinearWeights& ModuleWeights::linear(std::string_view linear_name) const {
  for (const LinearWeights& l : linears)
    if (l.name == linear_name) return l;
  throw LayoutError("module " + shown(name) + " has no linear layer " + shown(linear_name));
}

ModuleWeights read_module(const Checkpoint& checkpoint, std::string_view module) {
  ModuleWeights out;
  out.name = std::string(module);
  const std::optional<ModuleKind> kind = kind_of(checkpoint, out.name);
  if (!kind) refuse_unknown(checkpoint, out.name);
  out.kind = *kind;
  Problems problems;
  LinearReader reader(checkpoint, problems);
  if (out.kind == ModuleKind::linear) out.linears.push_back(reader.read(out.name));
  const auto& parts = out.kind == ModuleKind::qkv ? qkv_parts : mlp_parts;
  if (out.kind != ModuleKind::linear)
    for (const std::string& part : parts) out.linears.push_back(reader.read(out.name + "." + part));
  problems.throw_if_any("cannot use module " + shown(module) + " of " +
                        shown(checkpoint.directory().string()));
  return out;
}

}  // namespace tpsim
