// SPDX-License-Identifier: MIT
// What `tpsim run` computes: the ranks' run, its stages, and the same tokens at tp 1.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <tpsim/backend/cuda/bounded_backend.hpp>

#include "sim/on_device.hpp"
#include "sim/run_command.hpp"

namespace tpsim::cli {
namespace {

constexpr std::size_t top_logits = 5;

template <class Real>
std::vector<std::pair<Index, double>> top_of(const eigen::Matrix<Real>& row) {
  std::vector<Index> ids;
  for (Index c = 0; c < row.cols(); ++c) ids.push_back(c);
  const std::size_t n = std::min(top_logits, ids.size());
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(),
      [&](Index a, Index b) { return row(0, a) != row(0, b) ? row(0, a) > row(0, b) : a < b; });
  std::vector<std::pair<Index, double>> out;
  for (std::size_t i = 0; i < n; ++i) out.emplace_back(ids[i], static_cast<double>(row(0, ids[i])));
  return out;
}

/// 1 + 2 L sums (L with parallel residuals) and a gather; the norms of all heads have one each.
std::vector<CollectiveOp> expected_collectives(const CausalLMShape& s, int tp) {
  if (tp == 1) return {};
  std::size_t sums = 1;
  for (const DecoderShape& layer : s.layers)
    sums += static_cast<std::size_t>(decoder_sums(layer).total());
  std::vector<CollectiveOp> out(sums, CollectiveOp::all_reduce);
  out.push_back(CollectiveOp::gather);
  return out;
}

std::string listed(const std::vector<std::pair<std::string, Index>>& counts) {
  std::string out;
  for (const auto& [op, n] : counts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, op);
  return out.empty() ? "none" : out;
}
std::vector<std::pair<std::string, Index>> counted(const std::vector<CollectiveOp>& ops) {
  std::vector<std::pair<std::string, Index>> out;
  for (const CollectiveOp op : ops) {
    if (out.empty() || out.back().first != name(op)) out.emplace_back(name(op), 0);
    ++out.back().second;
  }
  return out;
}

Finding finding(const char* check, const OutputPlace& at, std::string message) {
  Finding f;
  f.check = check, f.rank = at.rank, f.tensor = at.tensor, f.message = std::move(message);
  return f;
}
void settle_run(CheckResult& c, const std::string& message) {
  c.result = !c.findings.empty() ? Outcome::fail : c.compared == 0 ? Outcome::skip : Outcome::pass;
  c.message = c.findings.empty() ? message : c.findings.front().message;
}

std::string place_text(const OutputPlace& at, const std::string& token) {
  return fmt::format("{}, rank {}, {} {}, column {}", at.tensor, at.rank, token, at.token,
                     at.column);
}
std::string outside_text(const RunStage& s, const std::string& token) {
  const std::string ratio =
      s.largest_ratio
          ? fmt::format("the largest difference is {:.3g} of its bound, ", *s.largest_ratio)
          : std::string("a number is not finite, ");
  return fmt::format("{}: {} of {} elements are outside their bound; {}at {}", s.name, s.outside,
                     s.compared, ratio, place_text(s.at, token));
}

CheckResult rounding_check(const std::vector<RunStage>& stages, const std::string& token) {
  CheckResult c{.id = "rounding", .reading = Reading::numeric};
  Index unbounded = 0;
  for (const RunStage& s : stages) {
    c.compared += s.compared;
    unbounded += s.unbounded;
    if (s.outside > 0) c.findings.push_back(finding("rounding", s.at, outside_text(s, token)));
    if (s.largest_ratio.value_or(-1) <= c.largest_ratio.value_or(-1)) continue;
    c.largest_ratio = s.largest_ratio;
    c.largest_place = s.at;
    c.largest_at = s.name + ", " + place_text(s.at, token);
  }
  std::string text = c.largest_ratio
                         ? fmt::format("largest difference {:.2g} of its bound", *c.largest_ratio)
                         : std::string("bounds through all layers are for f64 alone");
  if (unbounded > 0 && c.largest_ratio)
    text += fmt::format("; {} of {} elements have no finite bound", unbounded, c.compared);
  settle_run(c, text);
  if (!c.largest_ratio && c.findings.empty()) c.result = Outcome::skip;
  return c;
}

CheckResult replicas_check(const std::vector<RunStage>& stages, int tp) {
  CheckResult c{.id = "replicas", .reading = Reading::numeric};
  for (const RunStage& s : stages) {
    c.compared += s.copies;
    if (s.unequal > 0)
      c.findings.push_back(
          finding("replicas", {-1, s.name, {}, 0, 0},
                  fmt::format("{}: {} elements differ from those of rank 0", s.name, s.unequal)));
  }
  settle_run(c, c.compared == 0 ? "no output is on several ranks"
                                : fmt::format("every stage bit-equal on {} ranks", tp));
  return c;
}

CheckResult collectives_check(const RunResult& r, const CausalLMShape& shape, int tp) {
  CheckResult c{.id = "collectives", .reading = Reading::numeric};
  const auto wanted = counted(expected_collectives(shape, tp));
  for (std::size_t s = 0; s < r.steps.size(); ++s) {
    for (const auto& [op, n] : r.steps[s].collectives) c.compared += n;
    if (r.steps[s].collectives == wanted) continue;
    c.findings.push_back(finding("collectives", {-1, "", {}, 0, 0},
                                 fmt::format("step {} has {}, wanted {}", s,
                                             listed(r.steps[s].collectives), listed(wanted))));
  }
  settle_run(c, tp == 1 ? "one rank needs none" : listed(wanted) + " in each step");
  return c;
}

/// The logits of every step, and the token that tp 1 would have chosen.
template <class B>
RunStage compare_logits(const Decoded<B>& have, const Decoded<B>& wanted, int tp,
                        std::vector<std::string>& notes) {
  RunStage out;
  out.name = "logits";
  for (std::size_t s = 0; s < have.logits.size(); ++s) {
    RunStage one;
    one.name = out.name;
    eigen::Tensor<double> at_1;
    at_1.value = wanted.logits[s].value.template cast<double>();
    at_1.bound = wanted.logits[s].bound;
    if (!at_1.has_bound())
      at_1.bound.setConstant(at_1.value.rows(), at_1.value.cols(),
                             std::numeric_limits<double>::infinity());
    compare_stage(one, {0, out.name, {}, static_cast<Index>(s), 0}, have.logits[s], at_1);
    if (one.largest_ratio.value_or(-1) > out.largest_ratio.value_or(-1) ||
        (out.outside == 0 && one.outside > 0))
      out.largest_ratio = one.largest_ratio, out.at = one.at;
    out.compared += one.compared, out.outside += one.outside, out.unbounded += one.unbounded;
    out.largest_difference = std::max(out.largest_difference, one.largest_difference);
    if (have.chosen[s] != wanted.chosen[s])
      notes.push_back(fmt::format("at step {} tp {} chooses token {}, tp 1 token {}", s, tp,
                                  have.chosen[s], wanted.chosen[s]));
  }
  return out;
}

template <class B>
RunResult run_on(const RunRequest& request, const RunModel& m, const StoredModel& on_ranks) {
  const CausalLMShape& shape = m.model.shape;
  RunResult out;
  out.plan = m.plan, out.architecture = m.model.architecture, out.shape = shape;
  out.notes = m.model.notes, out.prompt = m.prompt;
  const DecoderSource truth{&m.model, &m.stored, request.dtype, request.all_reduce, request.tf32};
  DecoderSource ranks = truth;
  ranks.stored = &on_ranks;

  std::optional<VirtualWorld> here;
  if (request.world == nullptr) here.emplace(request.tp);
  RankWorld& world = here ? *here : *request.world;
  Decoded<B> have = decode<B>(world, ranks, m.prompt, request.generate);
  RunStreams streams;
  if (world.is_root()) {
    std::vector<Index> ids;
    for (const DecoderStep& s : have.steps) ids.insert(ids.end(), s.ids.begin(), s.ids.end());
    streams = RunReference(truth, ids).take();
  }
  streams.share(world);
  StageReport<B> report(request.tp);
  world.run([&](Communicator& comm) {
    RankNet<B>& rank = *have.nets[static_cast<std::size_t>(comm.rank())];
    rank.port.connect(comm);
    report.of(comm.rank()) = StageRun<B>(streams, shape)(rank, have.steps);
  });
  have.nets.clear();
  report.bring(world);
  if (!world.is_root()) return out;  // the root tells
  out.stages = report.finish(streams);
  for (std::size_t s = 0; s < have.steps.size(); ++s) {
    RunStep step{have.steps[s].past, static_cast<Index>(have.steps[s].ids.size()), {}, 0, {}};
    std::vector<CollectiveOp> ops;
    for (const CollectiveRecord& r : have.collectives[s]) ops.push_back(r.op);
    step.collectives = counted(ops);
    step.wire_bytes = wire_bytes(have.collectives[s]);
    step.top = top_of(have.logits[s].value);
    out.steps.push_back(std::move(step));
  }
  if (request.generate > 0) out.generated = have.chosen;
  out.weight_bytes = have.weight_bytes;
  for (const DecoderShape& layer : shape.layers) {
    const QkvShape& q = layer.attention.qkv;
    const Index heads = std::max<Index>(1, q.kv_heads / request.tp);
    out.kv_bytes_per_token += heads * (q.head_dim + q.v_head()) * bytes_of(request.dtype);
  }

  const std::string decoder = "decoder", logits = "logits";
  CheckResult names{.id = "names", .reading = Reading::statics, .result = Outcome::pass};
  names.compared = m.tensors;
  names.message = fmt::format("{} tensors, every one read once", m.tensors);
  out.checks.emplace_back(decoder, std::move(names));
  out.checks.emplace_back(decoder, collectives_check(out, shape, request.tp));
  out.checks.emplace_back(decoder, replicas_check(out.stages, request.tp));
  out.checks.emplace_back(decoder, rounding_check(out.stages, "token"));
  if (request.tp > 1) {
    // One pass for all generated tokens: it costs less, and shows that steps give what a chunk
    // does.
    VirtualWorld one(1);
    const Decoded<B> at_1 = decode<B>(one, truth, m.prompt, request.generate, have.chosen);
    out.logits = compare_logits(have, at_1, request.tp, out.notes);
    out.checks.emplace_back(logits, rounding_check({*out.logits}, "step"));
  }
  return out;
}

}  // namespace

RunResult run(const RunRequest& request, const RunModel& model, const StoredModel& on_ranks) {
  if (request.backend == "cuda")
    return on_device([&] { return run_on<BoundedCudaBackend>(request, model, on_ranks); });
  return request.dtype == DType::f64 ? run_on<EigenBackend<double>>(request, model, on_ranks)
                                     : run_on<EigenBackend<float>>(request, model, on_ranks);
}
RunResult run(const RunRequest& request, const RunModel& model) {
  return run(request, model, model.stored);
}

}  // namespace tpsim::cli
