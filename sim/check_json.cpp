// SPDX-License-Identifier: MIT
// The `tpsim.report/1` object of `tpsim check`; docs: README, section Check a model.
#include <nlohmann/json.hpp>

#include <tpsim/version.hpp>

#include "sim/check_command.hpp"
#include "sim/check_numeric.hpp"
#include "sim/cuda_numeric.hpp"
#include "sim/report_checks.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

Json request_json(const CheckRequest& r, const CheckedModel& model) {
  Json j{{"model", r.model},
         {"plan", r.plan_file.empty() ? Json(nullptr) : Json(r.plan_file)},
         {"fault", r.fault.empty() ? Json(nullptr) : Json(r.fault)},
         {"tp", r.all_tp ? Json("all") : Json(r.tp)},
         {"reading", Json::array()}};
  if (r.statics) j["reading"].push_back("static");
  if (r.exact) j["reading"].push_back("exact");
  if (r.numeric) j["reading"].push_back("numeric");
  j["full"] = r.full;
  j["dtype"] = name(numeric_dtype(r, model));
  j["all_reduce"] = name(r.all_reduce);
  j["seed"] = r.seed;
  j["backend"] = r.backend;
  if (r.backend == "cuda") j["device"] = cuda_device(), j["tf32"] = r.tf32;
  j["comm"] = r.comm;
  return j;
}

Json model_json(const CheckedModel& m) {
  const DecoderShape& layer = m.model.kinds.front().shape;
  const QkvShape& q = layer.attention.qkv;
  Json kinds = Json::array();
  for (std::size_t k = 0; k < m.model.kinds.size(); ++k) kinds.push_back(m.layers_of(k));
  return {{"architecture", m.model.architecture},
          {"hidden", q.hidden},
          {"intermediate", layer.intermediate},
          {"layers", m.model.kind_of_layer.size()},
          {"layer_kinds", std::move(kinds)},
          {"heads", q.heads},
          {"kv_heads", q.kv_heads},
          {"head_dim", q.head_dim},
          {"vocab", m.model.shape.vocab.vocab},
          {"tied", m.model.shape.tied},
          {"dtype", name(m.dtype())},
          {"weights", m.files.has_value()}};
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json first_json(const CheckRun& run) {
  if (!run.first) return nullptr;
  const Divergence& d = *run.first;
  return {{"stage", d.stage},
          {"part", d.part},
          {"check", d.check.id},
          {"reading", name(d.check.reading)},
          {"rank", d.rank < 0 ? Json(nullptr) : Json(d.rank)},
          {"tensor", d.tensor},
          {"head", or_null(d.head)},
          {"row", or_null(d.row)},
          {"reduced", d.reduced}};
}

Json run_json(const CheckRun& run) {
  if (!run.broken.empty()) {
    Json broken = Json::array();
    for (const Violation& v : run.broken)
      broken.push_back({{"id", v.rule}, {"message", v.message}});
    return {{"tp", run.tp}, {"legal", false}, {"broken", std::move(broken)}};
  }
  Json checks = Json::array();
  for (const StageResult& s : run.stages)
    for (Json& c : checks_json(s.stage, s.checks)) checks.push_back(std::move(c));
  Json j{{"tp", run.tp},
         {"legal", true},
         {"result", name(run.outcome())},
         {"checks", std::move(checks)},
         {"first_divergence", first_json(run)}};
  if (run.cost) {
    j["collectives"] = Json::array();
    for (const ModelCollective& c : run.cost->collectives)
      j["collectives"].push_back(
          {{"op", c.op}, {"count", c.count}, {"bytes_per_token", c.bytes_per_token}});
    j["cost"] = {{"weight_bytes_per_rank", run.cost->weight_bytes},
                 {"kv_bytes_per_token_per_rank", run.cost->kv_bytes_per_token},
                 {"wire_bytes_per_token_per_rank", run.cost->wire_bytes_per_token}};
  }
  return j;
}

}  // namespace

std::string check_json(const CheckRequest& request, const CheckedModel& model,
                       const CheckOutcome& result, double elapsed_s) {
  Json j{{"schema", "tpsim.report/1"},
         {"version", TPSIM_VERSION},
         {"command", "check"},
         {"result", result.passed() ? "pass" : "fail"},
         {"request", request_json(request, model)},
         {"model", model_json(model)},
         {"checks", checks_json("checkpoint", {result.names})},
         {"runs", Json::array()}};
  std::vector<int> legal;
  for (const CheckRun& run : result.runs) {
    j["runs"].push_back(run_json(run));
    if (run.broken.empty()) legal.push_back(run.tp);
  }
  j["legal_tp"] = legal;
  j["notes"] = notes_of(request, model, result);
  j["elapsed_s"] = elapsed_s;
  return j.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tpsim::cli
