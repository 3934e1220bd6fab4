// SPDX-License-Identifier: MIT
// How much memory the stages of a model need.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "sim/check_numeric.hpp"
#include "sim/check_run.hpp"
#include "sim/memory.hpp"

namespace tpsim::cli {
namespace {

double elements_of(const Stage& stage, const BoundModel& model) {
  const VocabShape& vocab = model.shape.vocab;
  if (stage.what == Stage::What::embedding || stage.what == Stage::What::head)
    return std::min(static_cast<double>(vocab.vocab) * static_cast<double>(vocab.hidden),
                    static_cast<double>(elements_at_once));
  double sum = 0;
  if (stage.what == Stage::What::layer)
    for (const BoundTensor& t : model.kinds[stage.kind].plan.tensors)
      sum += static_cast<double>(t.shape_of(t.layout.rows()).size());
  return sum;
}

std::vector<Stage> different_stages(const CheckedModel& model) {
  std::vector<Stage> out{{Stage::What::embedding}, {Stage::What::norm}, {Stage::What::head}};
  for (std::size_t kind = 0; kind < model.model.kinds.size(); ++kind)
    out.push_back({Stage::What::layer, kind, model.first_layer(kind)});
  return out;
}

}  // namespace

void require_stage_memory(const CheckRequest& request, const CheckedModel& model, bool weights) {
  const bool full = request.exact && request.full, numbers = request.numeric && weights;
  if (!full && !numbers) return;
  const Index tokens = std::max(full ? tokens_at_full_size : 0, numbers ? numeric_tokens : 0);
  for (const int tp : request.tp) {
    if (!model.broken(tp).empty()) continue;
    const StageMaker stages(model.model, tp, "");
    for (const Stage& stage : different_stages(model)) {
      const DecoderShape& layer = model.model.kinds[stage.kind].shape;
      const bool is_layer = stage.what == Stage::What::layer;
      double bytes =
          activation_bytes(*stages.full(stage, tokens), tokens, tp,
                           is_layer ? columns_inside(layer.attention.qkv, layer.intermediate) : 0);
      if (numbers) bytes += bytes_of_kept_weight * elements_of(stage, model.model);
      require_memory(
          bytes, fmt::format("{} at tp {} needs", stage.name(), tp), "for its numbers",
          full ? "leave --full out, or use --reading static" : "use --reading static,exact");
    }
  }
}

}  // namespace tpsim::cli
