// SPDX-License-Identifier: MIT
#include "sim/check_cost.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <tpsim/comm/trace.hpp>

namespace tpsim::cli {
namespace {

// Bytes that a rank sends for one token.
Index wire_of(const std::string& op, Index bytes_per_token, int tp) {
  for (const CollectiveOp known : {CollectiveOp::all_reduce, CollectiveOp::all_gather,
                                   CollectiveOp::gather, CollectiveOp::reduce_scatter})
    if (name(known) == op) {
      const bool gathers = known == CollectiveOp::all_gather || known == CollectiveOp::gather;
      return wire_bytes(known, gathers ? bytes_per_token * tp : bytes_per_token, tp);
    }
  return 0;
}

std::string text_of(const std::map<std::string, Index>& counts) {
  std::string out;
  for (const auto& [op, count] : counts)
    out += fmt::format("{}{} {}", out.empty() ? "" : " and ", count, op);
  return out.empty() ? "none" : out;
}

}  // namespace

ModelCost no_cost(int tp) {
  const std::vector<Index> none(static_cast<std::size_t>(tp), 0);
  return {none, none, none, {}};
}

void add_cost(ModelCost& cost, const Report& report, const Stage& stage, const BoundModel& model,
              DType dtype) {
  const bool layer = stage.what == Stage::What::layer;
  const std::vector<std::size_t>& kinds = model.kind_of_layer;
  const Index times = layer ? std::count(kinds.begin(), kinds.end(), stage.kind) : 1;
  // A tied head has the embedding's weight, which is counted there.
  const bool counted = stage.what == Stage::What::head && model.shape.tied;
  const auto ranks = std::min(cost.weight_bytes.size(), report.cost.weight_bytes.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!counted) cost.weight_bytes[r] += times * report.cost.weight_bytes[r];
    cost.kv_bytes_per_token[r] += layer ? times * report.cost.kv_bytes_per_token[r] : 0;
  }
  for (const CollectiveReport& c : report.collectives) {
    const Index bytes = c.shape.cols() * bytes_of(dtype);
    for (Index& wire : cost.wire_bytes_per_token) wire += times * wire_of(c.op, bytes, report.tp);
    const auto known =
        std::find_if(cost.collectives.begin(), cost.collectives.end(),
                     [&](const auto& k) { return k.op == c.op && k.bytes_per_token == bytes; });
    if (known == cost.collectives.end())
      cost.collectives.push_back({c.op, times, bytes});
    else
      known->count += times;
  }
}

CheckResult check_collectives_of(const ModelCost& cost, const BoundModel& model, int tp) {
  CheckResult out{.id = "collectives"};
  std::map<std::string, Index> wanted, seen;
  if (tp > 1) {
    wanted["all_reduce"] = 1;
    for (const DecoderShape& layer : model.shape.layers)
      wanted["all_reduce"] += decoder_sums(layer).total();
    wanted[model.shape.gather_to_all ? "all_gather" : "gather"] = 1;
  }
  for (const ModelCollective& c : cost.collectives) {
    seen[c.op] += c.count;
    out.compared += c.count;
  }
  out.message = seen == wanted && tp == 1 ? "one rank calls none"
                : seen == wanted          ? text_of(seen) + " in a forward, as planned"
                                          : "";
  if (seen != wanted) {
    out.message = fmt::format("a forward calls {}, planned {}", text_of(seen), text_of(wanted));
    out.findings.push_back({"collectives", -1, "", out.message,
                            "a stage calls a collective too few or too many times",
                            "one all_reduce for the embedding, one after each row-parallel layer "
                            "or parallel block, one gather of the logits"});
  }
  out.result = !out.findings.empty() ? Outcome::fail
               : out.compared == 0   ? Outcome::skip
                                     : Outcome::pass;
  return out;
}

}  // namespace tpsim::cli
