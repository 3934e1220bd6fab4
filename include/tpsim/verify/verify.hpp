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
  Schedule schedule = {};  ///< no result may depend on it
};

namespace detail {

/// Check `divide`: every cut part goes round evenly over the ranks.
[[nodiscard]] inline CheckResult check_divide(const Subject& subject) {
  CheckResult result{.id = "divide"};
  std::string parts;
  for (const DeclaredParam& param : subject.params)
    for (const DeclaredPart& part : param.parts) {
      if (!param.tp_dim || part.tensor->shape.rank() == 1) continue;
      const std::vector<Runs>& cut = *param.tp_dim == 1 ? part.cols : part.rows;
      for (std::size_t r = 0; r < cut.size(); ++r)
        if (cut[r].size() != cut[0].size() || cut[r].empty() || cut[r].size() % part.granule != 0)
          result.findings.push_back(
              {"divide", static_cast<int>(r), param.name,
               "rank " + std::to_string(r) + " holds " + std::to_string(cut[r].size()) + " of " +
                   part.tensor->name + ", rank 0 " + std::to_string(cut[0].size()),
               "", ""});
      const Index entries = part.tensor->shape.dim(*param.tp_dim) / part.granule;
      result.compared += 1;
      parts += (parts.empty() ? "" : ", ") + std::to_string(entries) + " " +
               (!part.granule_name.empty() ? (part.label == "q" ? "q heads" : part.label + " heads")
                                           : (part.label.empty() ? "" : part.label + " ") +
                                                 (*param.tp_dim == 1 ? "columns" : "rows"));
    }
  result.message = !result.findings.empty() ? result.findings.front().message
                   : parts.empty()          ? "nothing is cut"
                                            : parts + " over " + count_of(subject.tp, "rank");
  settle(result);
  return result;
}

}  // namespace detail

/// Verifies a subject by the readings asked for. All checks run, whatever an earlier one found.
[[nodiscard]] inline Report verify(const Subject& subject, const VerifyOptions& o = {}) {
  Report report;
  report.subject = subject.layer;
  report.tp = subject.tp;
  const StaticReading statics = read_statically(subject, o.schedule);
  const auto add = [&](std::vector<CheckResult> checks) {
    for (CheckResult& c : checks) report.checks.push_back(std::move(c));
  };
  if (o.statics) {
    report.checks.push_back(detail::check_divide(subject));
    add(statics.checks);
  }
  if (o.exact)
    add(read_exactly(subject, statics.soundness, {.seed = o.seed, .schedule = o.schedule}));
  if (o.numeric) add(read_numerically(subject, {o.dtype, o.seed, o.schedule}));
  report.tensors = shard_reports(subject, statics.held);
  report.collectives = collective_reports(statics.trace, o.dtype);
  report.cost = cost_in(statics, subject, o.dtype);
  return report;
}

}  // namespace tpsim
