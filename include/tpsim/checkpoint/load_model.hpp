// SPDX-License-Identifier: MIT
// A decoder's weights from a checkpoint: every tensor to the weight_loader that its plan names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/check_names.hpp>
#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/layers/causal_lm.hpp>
#include <tpsim/layout/row_identity.hpp>

namespace tpsim {

/// The tensors of a checkpoint in the order of BoundModel::tensors; null where nothing reads one.
using StoredModel = std::vector<std::shared_ptr<const StoredTensor>>;

/// Looks up every tensor of the model. The files stay mapped as long as the result lives; nothing
/// is read but their headers.
/// @throws LayoutError with everything that check_names finds, and as CheckpointFiles
[[nodiscard]] inline StoredModel open_model_tensors(const BoundModel& model,
                                                    const CheckpointFiles& files) {
  const CheckResult names = check_names(model, files.entries());
  if (names.result != Outcome::pass) {
    std::vector<Violation> broken;
    for (const Finding& f : names.findings)
      broken.push_back({f.check, f.message + (f.cause.empty() ? "" : "; " + f.cause)});
    if (broken.empty()) broken.push_back({"names", names.message});
    throw LayoutError(
        "the tensors in " + files.directory().string() + " are not those of its config.json",
        std::move(broken), "a model of another shape of names needs --plan FILE");
  }
  StoredModel out;
  for (const ModelTensor& t : model.tensors) {
    if (t.optional) {
      out.push_back(nullptr);
      continue;
    }
    const CheckpointTensor tensor = files.tensor(t.name);
    auto stored = std::make_shared<StoredTensor>();
    stored->name = t.name, stored->shape = tensor.shape, stored->values = tensor.values;
    std::size_t part = 0;
    stored->identity = row_identity(t.bound->layout, [&](std::string_view) -> Logical {
      const Index rows = t.bound->layout.parts()[part].disk_rows.size();
      return std::make_shared<LogicalTensor>(t.logical(part++), t.bound->shape_of(rows));
    });
    out.push_back(std::move(stored));
  }
  return out;
}

/// Fills the parameters of this rank; of every tensor only the rows and columns that the rank
/// holds are read.
/// @param net     built from model.shape
/// @param stored  of the same model
/// @throws LayoutError (names) for a parameter that the decoder does not have, and as the
///   weight_loaders
template <DecoderBackend B, class Layers>
void load_model(CausalLM<B, Layers>& net, const BoundModel& model, const StoredModel& stored) {
  using Load = std::function<void(bool is_bias, const FullTensor&, const RowLayout&)>;
  std::map<std::string, Load, std::less<>> layers;
  net.for_each_layer([&](const std::string& prefix, auto& layer) {
    layers[prefix] = [&layer](bool is_bias, const FullTensor& loaded, const RowLayout& layout) {
      load_tensor(layer, is_bias, loaded, layout);
    };
  });
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    if (stored.at(i) == nullptr) continue;
    const ModelTensor& t = model.tensors[i];
    const std::size_t leaf = t.param.rfind('.') + 1;
    const auto layer = layers.find(std::string_view(t.param).substr(0, leaf));
    if (layer == layers.end())
      throw LayoutError("the decoder has no parameter " + t.param,
                        {{"names", "nothing reads " + t.name}});
    layer->second(t.param.substr(leaf) == "bias", FullTensor(stored[i]), t.bound->layout);
  }
}

}  // namespace tpsim
