// SPDX-License-Identifier: MIT
// The `tpsim.report/1` object. Fields are only ever added; docs: README, section JSON.
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include <tpsim/verify/decoder_words.hpp>
#include <tpsim/verify/replay.hpp>
#include <tpsim/version.hpp>

#include "sim/cuda_numeric.hpp"
#include "sim/report.hpp"
#include "sim/report_checks.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

Json shape_json(Shape s) {
  return s.rank() == 1 ? Json::array({s.rows()}) : Json::array({s.rows(), s.cols()});
}

// JSON has no infinity or NaN: such a figure is null.
Json finite(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

void append_how(Json& j, const LayerRequest& r) {
  j["reading"] = Json::array();
  if (r.statics) j["reading"].push_back("static");
  if (r.exact) j["reading"].push_back("exact");
  if (r.numeric) j["reading"].push_back("numeric");
  j["dtype"] = name(r.dtype);
  j["all_reduce"] = name(r.all_reduce);
  j["seed"] = r.seed;
  j["backend"] = r.backend;
  if (r.backend == "cuda") j["device"] = cuda_device(), j["tf32"] = r.tf32;
  j["comm"] = r.comm;
}

// The sizes and choices of a norm, attention or decoder layer.
void append_decoder(Json& j, const LayerSpec& s) {
  const DecoderShape d = decoder_shape(s);
  const AttentionShape& a = d.attention;
  const bool heads = s.layer != "norm" || a.qk_norm == QkNorm::full_width;
  if (heads)
    j["heads"] = s.qkv.heads, j["kv_heads"] = s.qkv.kv_heads, j["head_dim"] = s.qkv.head_dim;
  if (s.layer != "norm") j["v_head_dim"] = s.qkv.v_head();
  if (s.layer != "norm" || !heads) j["hidden"] = s.qkv.hidden;
  if (s.layer == "decoder") j["intermediate"] = s.intermediate;
  j["qk_norm"] = name(a.qk_norm);
  if (s.layer == "decoder" || !heads) j["norm"] = name(d.norm);
  if (s.layer == "norm") return;
  j["rotary_dim"] = a.rope ? Json(a.rope->rotary_dim) : Json(nullptr);
  j["window"] = a.window ? Json(*a.window) : Json(nullptr);
  j["alibi"] = a.alibi, j["sinks"] = a.sinks, j["chunk"] = s.chunk;
  j["qkv_bias"] = a.qkv_bias, j["o_bias"] = a.o_bias;
  if (s.layer == "attention") return;
  j["mlp_bias"] = d.mlp_bias, j["plain_mlp"] = !d.gated;
  j["activation"] = name(d.activation), j["parallel_residual"] = d.parallel_residual;
}

Json spec_json(const LayerRequest& r, const LayerSpec& s) {
  Json j{{"tp", s.tp},
         {"layer", s.layer},
         {"model", r.weights.empty() && !r.toy ? Json(r.model) : Json(nullptr)},
         {"fault", r.fault.empty() ? Json(nullptr) : Json(r.fault)},
         {"toy", r.toy}};
  if (s.layer == "qkv") {
    j["heads"] = s.qkv.heads, j["kv_heads"] = s.qkv.kv_heads, j["head_dim"] = s.qkv.head_dim,
    j["v_head_dim"] = s.qkv.v_head(), j["hidden"] = s.qkv.hidden;
  } else if (s.layer == "mlp") {
    j["hidden"] = s.qkv.hidden, j["intermediate"] = s.intermediate;
  } else if (is_decoder_layer(s.layer)) {
    append_decoder(j, s);
  } else if (is_vocab_layer(s.layer)) {
    j["vocab"] = s.vocab, j["hidden"] = s.qkv.hidden, j["vocab_cut"] = s.vocab_cut;
    j["tied"] = s.tied, j["argmax"] = s.argmax, j["last_token"] = s.last_token;
  } else if (s.layer == "merged") {
    j["in"] = s.in;
    j["parts"] = Json::array();
    for (const MergedPart& p : s.parts) j["parts"].push_back(p.rows);
  } else {
    j["in"] = s.in, j["out"] = s.out;
  }
  j["tokens"] = s.tokens;
  j["bias"] = s.bias;
  j["skip_bias_add"] = s.skip_bias_add;
  j["gather_output"] = s.gather_output;
  j["input_is_parallel"] = s.input_is_parallel;
  j["reduce_results"] = s.reduce_results;
  j["disk"] = s.disk.empty() ? Json(nullptr) : Json(s.disk);
  j["weights"] = r.weights.empty() ? Json(nullptr) : Json(r.weights);
  j["module"] = r.module.empty() ? Json(nullptr) : Json(r.module);
  append_how(j, r);
  return j;
}

Json tensors_json(const Report& report) {
  Json all = Json::array();
  for (const TensorReport& t : report.tensors) {
    Json shards = Json::array();
    for (const Shard& s : t.shards) {
      Json pieces = Json::array();
      for (const ShardPiece& p : s.pieces) {
        Json piece{{"param", {p.begin, p.end}},
                   {"source", p.source.empty() ? Json(nullptr) : Json(p.source)},
                   {"range", {p.source_begin, p.source_end}},
                   {"label", p.label},
                   {"part", p.part},
                   {"as_declared", p.as_declared}};
        if (p.source_stride != 1) piece["stride"] = p.source_stride;
        pieces.push_back(std::move(piece));
      }
      shards.push_back(
          {{"rank", s.rank}, {"shape", shape_json(s.shape)}, {"pieces", std::move(pieces)}});
    }
    all.push_back({{"name", t.name},
                   {"tp_dim", t.tp_dim ? Json(*t.tp_dim) : Json(nullptr)},
                   {"full_shape", shape_json(t.full_shape)},
                   {"shards", std::move(shards)}});
  }
  return all;
}

}  // namespace

Json checks_json(const std::string& subject, const std::vector<CheckResult>& checks) {
  Json all = Json::array();
  for (const CheckResult& c : checks) {
    Json findings = Json::array();
    for (const Finding& f : c.findings)
      findings.push_back({{"rank", f.rank < 0 ? Json(nullptr) : Json(f.rank)},
                          {"tensor", f.tensor},
                          {"message", f.message},
                          {"cause", f.cause},
                          {"repair", f.repair}});
    Json check{{"id", c.id},
               {"reading", name(c.reading)},
               {"result", name(c.result)},
               {"compared", c.compared},
               {"subject", subject},
               {"message", c.message},
               {"findings", std::move(findings)}};
    if (c.seeds) check["seeds"] = *c.seeds;
    if (c.log2_miss) check["log2_miss"] = finite(*c.log2_miss);
    if (c.largest_ratio)
      check["largest_ratio"] = finite(*c.largest_ratio), check["largest_at"] = c.largest_at;
    if (const auto& at = c.largest_place)
      check["largest_place"] = {{"rank", at->rank},
                                {"tensor", at->tensor},
                                {"head", at->head ? Json(*at->head) : Json(nullptr)},
                                {"token", at->token},
                                {"column", at->column}};
    if (c.detection_floor) check["detection_floor"] = finite(*c.detection_floor);
    all.push_back(std::move(check));
  }
  return all;
}

namespace {

Json body_json(const LayerRequest& request, const LayerResult& result) {
  const Report& report = result.report;
  Json notes = result.notes;
  if (std::string unseen = unseen_fault(request, report); !unseen.empty())
    notes.push_back(std::move(unseen));
  Json collectives = Json::array();
  for (const CollectiveReport& c : report.collectives)
    collectives.push_back({{"op", c.op},
                           {"group", c.group},
                           {"shape", shape_json(c.shape)},
                           {"dtype", c.dtype},
                           {"bytes", c.bytes},
                           {"at", c.at}});
  const Cost& cost = report.cost;
  return {{"tensors", tensors_json(report)},
          {"collectives", std::move(collectives)},
          {"checks", checks_json(report.subject, report.checks)},
          {"cost",
           {{"weight_bytes_per_rank", cost.weight_bytes},
            {"kv_bytes_per_token_per_rank", cost.kv_bytes_per_token},
            {"flop_per_rank", cost.flop},
            {"wire_bytes_per_rank", cost.wire_bytes},
            {"full_weight_bytes", cost.full_weight_bytes},
            {"full_flop", cost.full_flop}}},
          {"notes", std::move(notes)}};
}

Json counterexample(const LayerRequest& request, const LayerResult& result) {
  Json smallest = spec_json(request, result.smallest_spec);
  smallest["comm"] = "virtual";  // where it was found
  return {{"request", std::move(smallest)}, {"command", result.smallest}};
}

// Text from files may be any bytes; invalid UTF-8 is replaced instead of thrown at.
std::string dump(const Json& j) { return j.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string json_report(const LayerRequest& request, const std::vector<LayerResult>& results,
                        double elapsed_s) {
  bool passed = true;
  for (const LayerResult& r : results) passed = passed && r.report.passed();
  Json j{{"schema", "tpsim.report/1"},
         {"version", TPSIM_VERSION},
         {"command", "layer"},
         {"result", passed ? "pass" : "fail"}};
  if (!request.all) {
    const LayerResult& only = results.front();
    j["request"] = spec_json(request, only.spec);
    j.update(body_json(request, only));
    if (!only.smallest.empty()) j["counterexample"] = counterexample(request, only);
  } else {
    j["request"] = {{"tp", request.specs.front().tp},
                    {"layer", "all"},
                    {"model", request.toy ? Json(nullptr) : Json(request.model)},
                    {"fault", request.fault.empty() ? Json(nullptr) : Json(request.fault)},
                    {"toy", request.toy}};
    append_how(j["request"], request);
    j["layers"] = Json::array();
    for (const LayerResult& r : results) {
      Json one{{"layer", r.report.subject},
               {"result", r.report.passed() ? "pass" : "fail"},
               {"request", spec_json(request, r.spec)}};
      one.update(body_json(request, r));
      if (!r.smallest.empty()) one["counterexample"] = counterexample(request, r);
      j["layers"].push_back(std::move(one));
    }
  }
  j["elapsed_s"] = elapsed_s;
  return dump(j);
}

void print_error(bool json, const std::string& message, const std::vector<Violation>& violations,
                 const std::string& hint) {
  std::string text = message;
  for (const Violation& v : violations) text += "\n  " + pad(v.rule, 6) + "  " + v.message;
  if (json) {
    Json j{{"schema", "tpsim.report/1"},
           {"version", TPSIM_VERSION},
           {"result", "error"},
           {"message", text},
           {"hint", hint}};
    if (!violations.empty()) {
      j["broken"] = Json::array();
      for (const Violation& v : violations)
        j["broken"].push_back({{"id", v.rule}, {"message", v.message}});
    }
    std::fputs((dump(j) + "\n").c_str(), stdout);
    return;
  }
  // Text in several lines is aligned already: a caret points into it.
  const auto fitted = [](const std::string& line, std::size_t first, std::size_t later) {
    return line.find('\n') == std::string::npos ? wrapped(line, first, later) : line;
  };
  text = "error: " + fitted(message, 7, 7) + "\n";
  for (const Violation& v : violations) {
    const std::string rule = "  " + pad(v.rule, 6) + "  ";
    text += rule + fitted(v.message, rule.size(), rule.size()) + "\n";
  }
  if (!hint.empty()) text += "hint: " + fitted(hint, 6, 6) + "\n";
  std::fputs(text.c_str(), stderr);
}

}  // namespace tpsim::cli
