// SPDX-License-Identifier: MIT
// The `tpsim.report/1` object of `tpsim plan`; docs: README, section JSON.
#include <cmath>

#include <nlohmann/json.hpp>

#include <tpsim/version.hpp>

#include "sim/plan_command.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

Json quantization_json(const Quantization& q) {
  if (q.method == QuantMethod::none) return nullptr;
  Json j{{"method", name(q.method)}};
  if (q.bits > 0) j["bits"] = q.bits, j["group_size"] = q.group_size;
  if (q.block_n > 0) j["block"] = {q.block_n, q.block_k};
  return j;
}

Json model_json(const ModelShape& m) {
  return {{"hidden", m.hidden},
          {"intermediate", m.intermediate},
          {"layers", m.layers},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"vocab", m.vocab},
          {"tied", m.tied},
          {"dtype", name(m.dtype)},
          {"experts", m.experts},
          {"expert_intermediate", m.expert_intermediate},
          {"experts_per_token", m.experts_per_token},
          {"quantization", quantization_json(m.quantization)},
          {"weight_bytes", checkpoint_bytes(m)}};
}

Json broken_json(const PlanRun& run) {
  Json all = Json::array();
  for (const BrokenRule& rule : run.broken) {
    const TpPadding* fix = fix_of(run, rule);
    all.push_back({{"id", rule.id},
                   {"message", rule.message},
                   {"fix", fix == nullptr ? "" : fix->text},
                   {"source", rule.source}});
  }
  return all;
}

Json padding_json(const PlanRun& run) {
  Json all = Json::array();
  for (const TpPadding& p : run.padding) {
    Json one{{"message", p.text}};
    if (p.area == RuleArea::attention)
      one["heads"] = p.padded.heads, one["kv_heads"] = p.padded.kv_heads;
    if (p.area == RuleArea::mlp) one["intermediate"] = p.padded.intermediate;
    if (p.area == RuleArea::experts) one["expert_intermediate"] = p.padded.expert_intermediate;
    if (p.area == RuleArea::vocab) one["vocab"] = p.padded.vocab;
    one["added_weight_bytes"] = p.added_bytes;
    all.push_back(std::move(one));
  }
  return all;
}

Json cost_json(const TpCost& cost) {
  std::vector<Index> weights, sharded, replicated;
  for (const RankBytes& r : cost.weights) {
    weights.push_back(r.total());
    sharded.push_back(r.sharded);
    replicated.push_back(r.replicated);
  }
  const std::vector<Index> kv(weights.size(), cost.kv_bytes_per_token);
  const std::vector<Index> wire(weights.size(), cost.wire_bytes);
  return {{"weight_bytes_per_rank", weights},
          {"sharded_bytes_per_rank", sharded},
          {"replicated_bytes_per_rank", replicated},
          {"kv_bytes_per_token_per_rank", kv},
          {"wire_bytes_per_token_per_rank", wire}};
}

Json run_json(const PlanRun& run, bool experts) {
  Json j{{"tp", run.tp}, {"legal", run.broken.empty()}, {"broken", broken_json(run)}};
  if (!run.broken.empty()) {
    j["padding"] = padding_json(run);
    return j;
  }
  j["collectives"] = Json::array();
  for (const PlannedCollective& c : run.cost->collectives)
    j["collectives"].push_back(
        {{"op", c.op}, {"count", c.count}, {"bytes_per_token", c.array_bytes}});
  j["cost"] = cost_json(*run.cost);
  j["estimate"] = {{"seconds_per_token", run.seconds.token},
                   {"seconds_per_prompt", run.seconds.prompt}};
  if (experts) j["experts_per_rank"] = run.cost->experts;
  return j;
}

}  // namespace

std::string plan_json(const PlanRequest& request, const PlanResult& result, double elapsed_s) {
  Json j{{"schema", "tpsim.report/1"},
         {"version", TPSIM_VERSION},
         {"command", "plan"},
         {"result", "pass"},
         {"request", {{"model", request.model}, {"rules", request.rules}, {"tp", request.tp}}},
         {"model", model_json(result.model.shape)},
         {"runs", Json::array()}};
  if (!request.plan_file.empty()) j["request"]["plan"] = request.plan_file;
  if (request.ep > 0) j["request"]["ep"] = request.ep;
  j["request"]["tokens"] = request.tokens;
  j["request"]["bandwidth"] = request.bandwidth;
  j["request"]["flops"] = std::llround(device_of(request, result.model.shape).flops / 1e12);
  j["request"]["link"] = request.link, j["request"]["latency"] = request.latency;
  for (const PlanRun& run : result.runs) j["runs"].push_back(run_json(run, request.ep > 0));
  j["legal_tp"] = result.legal_tp();
  j["notes"] = result.model.notes;
  j["elapsed_s"] = elapsed_s;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tpsim::cli
