// SPDX-License-Identifier: MIT
// One subject, all readings, one report.
#pragma once

#include <tpsim/verify/exact_reading.hpp>
#include <tpsim/verify/numeric_reading.hpp>
#include <tpsim/verify/shards.hpp>

namespace tpsim {

struct VerifyOptions {
  bool statics = true, exact = true, numeric = true;
  DType dtype = DType::f32;  ///< of the numeric reading and of the byte counts
  std::uint64_t seed = 1;
  Schedule schedule = {};                      ///< no result may depend on it
  ReduceOrder all_reduce = ReduceOrder::rank;  ///< of the numeric reading
  Weakening weakening = Weakening::none;       ///< for tests of the verifier alone
  /// Where the ranks of the exact and the numeric reading live; null: in this process. Every
  /// process verifies alike, and the root's report is the one that counts.
  RankWorld* world = nullptr;
  const NumericEngine* engine = nullptr;  ///< of the numeric reading; null: the CPU
};

namespace detail {

/// Check `divide`: every rank holds a part of equal size, the size that the declared cut has.
/// @param held  [rank][param]
[[nodiscard]] inline CheckResult check_divide(const Subject& subject,
                                              const std::vector<HeldRank>& held) {
  CheckResult result{.id = "divide"};
  std::string parts;
  // A vector is told where there is no weight that it is cut like.
  const bool vectors =
      std::none_of(subject.params.begin(), subject.params.end(),
                   [](const DeclaredParam& p) { return p.tp_dim && p.full_shape.rank() == 2; });
  for (std::size_t p = 0; p < subject.params.size(); ++p) {
    const DeclaredParam& param = subject.params[p];
    if (!param.tp_dim) continue;
    const int dim = *param.tp_dim;
    for (std::size_t r = 0; r < held.size(); ++r) {
      Index wanted = dim == 1 ? param.parts[0].cols[r].size() : 0;
      if (dim == 0)
        for (const DeclaredPart& part : param.parts) wanted += part.rows[r].size();
      if (dim == 0) wanted += param.padding_of(r);
      const Index have = held[r][p].shape.dim(dim), first = held[0][p].shape.dim(dim);
      result.compared += 1;
      if (have == wanted && have == first && have > 0) continue;
      const std::string unit = dim == 1 ? " columns of " : " rows of ";
      const Cause cause =
          size_cause({subject, held, p}, r)
              .value_or(Cause{"the parameter was made for another tp or another rank",
                              "divide each part by tp_size"});
      result.findings.push_back({"divide", static_cast<int>(r), param.name,
                                 "rank " + std::to_string(r) + " has " + std::to_string(have) +
                                     unit + param.name + ", wanted " + std::to_string(wanted) +
                                     (have == first ? "" : "; rank 0 has " + std::to_string(first)),
                                 cause.cause, cause.repair});
    }
    if (param.full_shape.rank() == 1 && !vectors) continue;
    for (const DeclaredPart& part : param.parts) {
      const Index entries = part.tensor->shape.dim(dim) / part.granule;
      const std::string label = part.label.empty() ? "" : part.label + " ";
      parts += (parts.empty() ? "" : ", ") + std::to_string(entries) + " " + label +
               (part.granule_name == "kv" || part.granule_name == "kv*g" ? "heads"
                : !part.granule_name.empty()                             ? part.granule_name
                : dim == 1                                               ? "columns"
                                                                         : "rows");
    }
    Index padding = 0;
    for (const Index rows : param.padding) padding += rows;
    if (padding > 0) parts += " and " + std::to_string(padding) + " of padding";
  }
  result.message = !result.findings.empty() ? result.findings.front().message
                   : parts.empty()          ? "nothing is cut"
                                            : parts + " over " + count_of(subject.tp, "rank");
  settle(result);
  return result;
}

}  // namespace detail

/// Verifies a subject by the readings asked for. All checks run, whatever an earlier one found.
/// (A template, as the readings are, so that a program may compile it in one place alone.)
template <class = void>
[[nodiscard]] Report verify(const Subject& subject, const VerifyOptions& o = {}) {
  Report report;
  report.subject = subject.layer;
  report.tp = subject.tp;
  const StaticReading statics = read_statically(subject, o.schedule, o.weakening);
  const auto add = [&](std::vector<CheckResult> checks) {
    for (CheckResult& c : checks) report.checks.push_back(std::move(c));
  };
  if (o.statics) {
    report.checks.push_back(detail::check_divide(subject, statics.held));
    add(statics.checks);
  }
  if (o.exact)
    add(read_exactly(
        subject, statics,
        {.seed = o.seed, .schedule = o.schedule, .weakening = o.weakening, .world = o.world}));
  if (o.numeric)
    add(read_numerically(subject, {o.dtype, o.seed, o.schedule, o.all_reduce, o.weakening,
                                   !statics.permuted, o.world, o.engine}));
  report.tensors = shard_reports(subject, statics.held);
  report.collectives = collective_reports(statics.trace, o.dtype);
  report.cost = cost_in(statics, subject, o.dtype);
  return report;
}

}  // namespace tpsim
