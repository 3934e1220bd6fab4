// SPDX-License-Identifier: MIT
#include "sim/check_model.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>

#include "sim/model_source.hpp"

namespace tpsim::cli {
namespace {

namespace fs = std::filesystem;

bool has_weights(const fs::path& folder) {
  const auto is_weight = [](const fs::directory_entry& e) {
    const std::string name = e.path().filename().string();
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  };
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator{}, is_weight);
}

}  // namespace

CheckedModel open_checked_model(const std::string& model, const std::string& plan_file) {
  const ModelSource source = find_model_source(model);
  CheckedModel out{source.name, bound(source, plan_file), {}};
  if (source.folder && has_weights(*source.folder)) out.files.emplace(*source.folder);
  return out;
}

std::vector<Violation> model_violations(const BoundModel& model, int tp) {
  std::vector<Violation> all = causal_lm_violations(model.shape, tp);
  if (!all.empty()) return all;
  for (const LayerKind& kind : model.kinds)
    for (Violation& v : violations(kind.plan, tp))
      if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(std::move(v));
  return all;
}

void require_legal(const BoundModel& model, const std::string& name, const std::vector<int>& tps,
                   int most, const std::string& more) {
  std::vector<Violation> broken;
  std::vector<int> illegal, legal;
  for (const int tp : tps) {
    const std::vector<Violation> of_tp = model_violations(model, tp);
    if (!of_tp.empty()) illegal.push_back(tp);
    for (const Violation& v : of_tp)
      broken.push_back({v.rule, (tps.size() > 1 ? fmt::format("tp {}: ", tp) : "") + v.message});
  }
  if (broken.empty()) return;
  for (int tp = 1; tp <= most; ++tp)
    if (model_violations(model, tp).empty()) legal.push_back(tp);
  throw LayoutError(fmt::format("tp {} cannot split {}", fmt::join(illegal, ", "), name),
                    std::move(broken),
                    legal.empty() ? "no tp is possible" : "tp can be " + or_list(legal) + more);
}

TensorValues CheckedModel::values(std::optional<Index> layer) const {
  TensorValues out;
  for (const ModelTensor& t : model.tensors)
    if (t.layer == layer && !t.optional)
      out[layer ? t.bound->name : t.param] = files->tensor(t.name).values;
  return out;
}

Index CheckedModel::first_layer(std::size_t kind) const {
  const auto it = std::find(model.kind_of_layer.begin(), model.kind_of_layer.end(), kind);
  return it - model.kind_of_layer.begin();
}

std::string CheckedModel::layers_of(std::size_t kind) const {
  std::string out;
  const std::vector<std::size_t>& kinds = model.kind_of_layer;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] != kind) continue;
    std::size_t last = i;
    while (last + 1 < kinds.size() && kinds[last + 1] == kind) ++last;
    out += (out.empty() ? "" : ", ") + std::to_string(i);
    if (last > i) out += "-" + std::to_string(last);
    i = last;
  }
  return "layers " + out;
}

}  // namespace tpsim::cli
