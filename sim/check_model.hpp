// SPDX-License-Identifier: MIT
// The MODEL of `tpsim check`: its plan with a config's numbers, and its weights where it has any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/verify/plan_subject.hpp>

namespace tpsim::cli {

/// Every rule that a tp breaks, each once: those of the layers, and what the plan cuts otherwise.
[[nodiscard]] std::vector<Violation> model_violations(const BoundModel& model, int tp);
/// @param tps   told apart where there are several
/// @param most  largest tp that the hint tells
/// @param more  follows the legal ones in the hint
/// @throws LayoutError with all rules that any of them breaks
void require_legal(const BoundModel& model, const std::string& name, const std::vector<int>& tps,
                   int most, const std::string& more = {});

struct CheckedModel {
  std::string name;
  BoundModel model;
  std::optional<CheckpointFiles> files;  ///< none: a shape without weights

  /// The dtype of the weights; bf16 when nothing says it.
  [[nodiscard]] DType dtype() const { return model.dtype.value_or(DType::bf16); }
  /// Every rule that a tp breaks, each once.
  [[nodiscard]] std::vector<Violation> broken(int tp) const { return model_violations(model, tp); }
  /// Numbers of a layer under the names of its plan, or with no layer of what is outside under the
  /// parameters' names. The mapped files live as long as they do. @pre files, and `names` passed
  [[nodiscard]] TensorValues values(std::optional<Index> layer) const;
  /// "layers 0-31": the layers that are of this kind.
  [[nodiscard]] std::string layers_of(std::size_t kind) const;
  [[nodiscard]] Index first_layer(std::size_t kind) const;
};

/// @param model  a built-in name, a folder with config.json and perhaps safetensors, a config.json
/// @param plan_file  empty: the built-in plan of its model_type
/// @throws UsageError for an unknown name, LayoutError for files that cannot be used
[[nodiscard]] CheckedModel open_checked_model(const std::string& model,
                                              const std::string& plan_file);

}  // namespace tpsim::cli
