// SPDX-License-Identifier: MIT
// The `tpsim.report/1` object of `tpsim run`; docs: README, section JSON.
#include <cmath>

#include <nlohmann/json.hpp>

#include <tpsim/version.hpp>

#include "sim/cuda_numeric.hpp"
#include "sim/report_checks.hpp"
#include "sim/run_command.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity or NaN: such a figure is null.
Json figure(const std::optional<double>& x) {
  return x && std::isfinite(*x) ? Json(*x) : Json(nullptr);
}

Json place_json(const OutputPlace& at, const char* token) {
  return {{"rank", at.rank}, {"tensor", at.tensor}, {token, at.token}, {"column", at.column}};
}

Json stage_json(const RunStage& s, const char* token) {
  Json j{{"stage", s.name},
         {"result", s.passed() ? "pass" : "fail"},
         {"compared", s.compared},
         {"outside", s.outside},
         {"without_bound", s.unbounded},
         {"largest_difference", figure(s.largest_difference)},
         {"largest_ratio", figure(s.largest_ratio)}};
  j["largest_place"] = s.largest_ratio || s.outside > 0 ? place_json(s.at, token) : Json(nullptr);
  return j;
}

Json steps_json(const RunResult& r) {
  Json all = Json::array();
  for (const RunStep& step : r.steps) {
    Json top = Json::array();
    for (const auto& [id, logit] : step.top) top.push_back({{"id", id}, {"logit", figure(logit)}});
    Json counts = Json::object();
    for (const auto& [op, n] : step.collectives) counts[op] = counts.value(op, Index{0}) + n;
    all.push_back({{"past", step.past},
                   {"tokens", step.tokens},
                   {"collectives", std::move(counts)},
                   {"wire_bytes_per_rank", step.wire_bytes},
                   {"top", std::move(top)}});
  }
  return all;
}

Json all_checks(const RunResult& r) {
  Json all = Json::array();
  for (const auto& [about, c] : r.checks)
    for (Json& check : checks_json(about, {c})) all.push_back(std::move(check));
  return all;
}

}  // namespace

std::string run_json(const RunRequest& request, const RunResult& r, double elapsed_s) {
  const DecoderShape& layer = r.shape.layers.front();
  const QkvShape& q = layer.attention.qkv;
  Json j{{"schema", "tpsim.report/1"},
         {"version", TPSIM_VERSION},
         {"command", "run"},
         {"result", r.passed() ? "pass" : "fail"},
         {"request",
          {{"model", request.model},
           {"plan", request.plan_file.empty() ? Json(nullptr) : Json(request.plan_file)},
           {"tp", request.tp},
           {"tokens", r.prompt},
           {"generate", request.generate},
           {"dtype", name(request.dtype)},
           {"all_reduce", name(request.all_reduce)},
           {"seed", request.seed},
           {"backend", request.backend},
           {"comm", request.comm}}},
         {"model",
          {{"architecture", r.architecture},
           {"hidden", q.hidden},
           {"intermediate", layer.intermediate},
           {"layers", r.shape.layers.size()},
           {"heads", q.heads},
           {"kv_heads", q.kv_heads},
           {"head_dim", q.head_dim},
           {"vocab", r.shape.vocab.vocab},
           {"tied", r.shape.tied}}},
         {"tokens", r.generated}};
  if (request.backend == "cuda")
    j["request"]["device"] = cuda_device(), j["request"]["tf32"] = request.tf32;
  j["steps"] = steps_json(r);
  j["stages"] = Json::array();
  for (const RunStage& s : r.stages) j["stages"].push_back(stage_json(s, "token"));
  j["logits"] = r.logits ? stage_json(*r.logits, "step") : Json(nullptr);
  if (r.logits) j["logits"].erase("stage");
  j["checks"] = all_checks(r);
  Index wire = 0;
  for (const RunStep& step : r.steps) wire += step.wire_bytes;
  j["cost"] = {{"weight_bytes_per_rank", r.weight_bytes},
               {"kv_bytes_per_token_per_rank",
                std::vector<Index>(r.weight_bytes.size(), r.kv_bytes_per_token)},
               {"wire_bytes_per_rank", std::vector<Index>(r.weight_bytes.size(), wire)}};
  j["notes"] = r.notes;
  j["elapsed_s"] = elapsed_s;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tpsim::cli
