// SPDX-License-Identifier: MIT
// `tpsim list WHAT`, `tpsim explain CHECK`, help and version.
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_list.hpp>
#include <tpsim/version.hpp>

#include "sim/commands.hpp"
#include "sim/explain.hpp"
#include "sim/models.hpp"
#include "sim/options.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Entry {
  std::string name, summary;
};

std::vector<Entry> entries(const std::string& what) {
  std::vector<Entry> out;
  if (what == "layers") {
    out = {{"column", "rows of the weight cut; outputs stay on their rank, or are gathered"},
           {"row", "columns of the weight cut; partial products are summed by one all_reduce"},
           {"merged",
            "several column-parallel parts with one input, each cut by itself (gate and up)"},
           {"qkv", "query, key and value cut by head; kv heads shared when tp exceeds them"},
           {"replicated", "whole on every rank"},
           {"mlp", "gated MLP: merged column, silu, row; one all_reduce"},
           {"embedding", "token ids to rows of a table cut over the vocabulary; one all_reduce"},
           {"lm_head", "logits, rows cut over the vocabulary; one gather, without the padding"},
           {"norm",
            "RMSNorm or LayerNorm, whole on every rank; with --qk-norm full one over all query "
            "heads, whose squares are summed by one all_reduce"},
           {"attention",
            "qkv, rotary positions, cache and attention by head, row; one all_reduce, and one "
            "more for each norm over all heads"},
           {"decoder",
            "norm, attention, norm and mlp round the residual stream; two all_reduces, or one "
            "(--parallel-residual)"}};
  } else if (what == "models") {
    for (const ModelShape& m : models())
      out.push_back(
          {m.name,
           fmt::format("hidden {}, heads {}, kv {}, head dim {}, intermediate {}, vocab {}",
                       m.hidden, m.heads, m.kv_heads, m.head_dim, m.intermediate, m.vocab)});
  } else if (what == "checks") {
    for (const CheckText& c : check_texts())
      out.push_back({std::string(c.id), std::string(c.summary)});
  } else if (what == "faults") {
    for (const Fault& f : faults())
      out.push_back({f.name, fmt::format("{} [{}]", f.summary, fmt::join(f.layers, ", "))});
  }
  return out;
}

// Every JSON answer that is no report begins alike.
Json answer(const std::string& command) {
  return {{"schema", "tpsim.report/1"},
          {"version", TPSIM_VERSION},
          {"command", command},
          {"result", "pass"}};
}

void print_json(const Json& j) { std::fputs((j.dump(2) + "\n").c_str(), stdout); }

}  // namespace

int run_list(const std::string& what, const Output& output) {
  const std::vector<std::string> lists{"layers", "models", "checks", "faults"};
  if (std::find(lists.begin(), lists.end(), what) == lists.end()) {
    const std::string near = nearest(what, lists);
    throw UsageError(what.empty() ? "'tpsim list' needs to know what"
                                  : fmt::format("there is no list '{}'", what),
                     near.empty() ? "a list is layers, models, checks or faults"
                                  : fmt::format("did you mean '{}'?", near));
  }
  const std::vector<Entry> all = entries(what);
  if (output.json) {
    Json items = Json::array();
    if (what == "faults")
      for (const Fault& f : faults())
        items.push_back({{"name", f.name},
                         {"layer", f.layers.front()},
                         {"layers", f.layers},
                         {"summary", f.summary},
                         {"caught_by", readings_that_find(f)}});
    else
      for (const Entry& e : all) items.push_back({{"name", e.name}, {"summary", e.summary}});
    Json j = answer("list");
    j[what] = std::move(items);
    print_json(j);
    return 0;
  }
  std::size_t width = 0;
  for (const Entry& e : all) width = std::max(width, e.name.size());
  for (const Entry& e : all)
    std::fputs(fmt::format("{:<{}}  {}\n", e.name, width, wrapped(e.summary, width + 2, width + 2))
                   .c_str(),
               stdout);
  return 0;
}

int run_explain(const std::string& check, const Output& output) {
  std::vector<std::string> ids;
  for (const CheckText& c : check_texts()) ids.emplace_back(c.id);
  for (const CheckText& c : check_texts()) {
    if (c.id != check) continue;
    if (output.json) {
      Json j = answer("explain");
      j["id"] = c.id, j["summary"] = c.summary;
      j["text"] = std::string(c.text) + (c.table.empty() ? "" : "\n\n" + c.table);
      print_json(j);
      return 0;
    }
    std::fputs(
        fmt::format("{}: {}\n\n{}\n", c.id, c.summary, wrapped(std::string(c.text), 0, 0)).c_str(),
        stdout);
    if (!c.table.empty()) std::fputs(("\n" + c.table).c_str(), stdout);
    return 0;
  }
  const std::string near = nearest(check, ids);
  throw UsageError(
      check.empty() ? "'tpsim explain' needs a check"
                    : fmt::format("there is no check '{}'", check),
      near.empty() ? "a check is " + or_list(ids) : fmt::format("did you mean '{}'?", near));
}

namespace {

int print_text(const char* command, const std::string& text, const Output& output) {
  if (output.json) {
    Json j = answer(command);
    j["text"] = text;
    print_json(j);
  } else {
    std::fputs(text.c_str(), stdout);
  }
  return 0;
}

}  // namespace

int run_request(const Request& request) {
  switch (request.kind) {
    case Request::Kind::version:
      return print_text("version", fmt::format("tpsim {}\n", TPSIM_VERSION), request.output);
    case Request::Kind::help:
      return print_text("help",
                        request.short_help ? short_help_text() : help_text(request.help_group),
                        request.output);
    case Request::Kind::list:
      return run_list(request.topic, request.output);
    case Request::Kind::explain:
      return run_explain(request.topic, request.output);
    case Request::Kind::check:
      return run_check(request.check);
    case Request::Kind::plan:
      return run_plan(request.plan);
    case Request::Kind::synth:
      return run_synth(request.synth);
    case Request::Kind::run:
      return run_model(request.run);
    case Request::Kind::layer:
      break;
  }
  return run_layer(request.layer);
}

}  // namespace tpsim::cli
