// SPDX-License-Identifier: MIT
// Check `partners`: parameters that meet in the forward pass hold the same entries: gate, up and
// the columns of down; a bias and the rows of its weight.
#pragma once

#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim {

[[nodiscard]] inline CheckResult check_partners(const Subject& subject,
                                                const std::vector<HeldRank>& held) {
  CheckResult result{.id = "partners"};
  const auto index_of = [&](const std::string& name) {
    for (std::size_t p = 0; p < subject.params.size(); ++p)
      if (subject.params[p].name == name) return p;
    return subject.params.size();
  };
  const auto entries = [&](const Partner& partner, std::size_t r) {
    const std::size_t p = index_of(partner.param);
    const auto [offset, size] = part_rows(subject.params[p], partner.part, r);
    const HeldParam& have = held[r][p];
    if (partner.dim == 1) return held_columns(have, offset);
    return held_rows(have, offset, std::min(offset + size, have.shape.rows()));
  };
  // The entries' numbers, whatever tensor they are of; nothing where an entry is not whole.
  const auto numbers = [](const Partner& partner, const std::vector<HeldRun>& runs) {
    std::optional<Runs> out{std::in_place};
    for (const HeldRun& run : runs) {
      if (!run.tensor) return std::optional<Runs>();
      if (partner.unit == 1) {
        out->append(run.source);
        continue;
      }
      for (const Run& r : run.source) {
        const bool whole =
            r.stride == 1 && r.begin % partner.unit == 0 && r.length % partner.unit == 0;
        if (!whole) return std::optional<Runs>();
        out->append({r.begin / partner.unit, r.length / partner.unit, 1});
      }
    }
    return out;
  };
  const auto text = [&](const Partner& partner, const std::vector<HeldRun>& runs) {
    return partner.param + (partner.dim == 1 ? " columns" : " rows") + " are " +
           describe(runs, partner.dim == 1 ? "columns" : "rows", 2);
  };
  std::string pairs;
  for (const std::vector<Partner>& group : subject.partners) {
    for (std::size_t i = 1; i < group.size(); ++i)
      for (std::size_t r = 0; r < held.size(); ++r) {
        const std::vector<HeldRun> a = entries(group[0], r), b = entries(group[i], r);
        const std::optional<Runs> left = numbers(group[0], a), right = numbers(group[i], b);
        bool written = true;
        for (const HeldRun& run : a)
          result.compared += run.source.size(), written = written && run.tensor;
        for (const HeldRun& run : b) written = written && run.tensor;
        if (left && right && *left == *right && a.size() == b.size()) continue;
        result.findings.push_back(
            {"partners", static_cast<int>(r), group[i].param,
             "rank " + std::to_string(r) + ": " + text(group[0], a) + ", but " + text(group[i], b),
             written ? "the two are cut by different rules"
                     : "one of the two was not loaded in full",
             written ? "cut both with the same offset and length" : "load every part of both"});
      }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::size_t p = index_of(group[i].param);
      const std::string& label = subject.params[p].parts[group[i].part].tensor->name;
      pairs += (i > 0           ? " = "
                : pairs.empty() ? ""
                                : ", ") +
               label + (group[i].dim == 1 ? " columns" : "");
    }
  }
  result.message = pairs.empty()             ? "no parameters meet"
                   : result.findings.empty() ? pairs + " on every rank"
                                             : result.findings.front().message;
  return result;
}

}  // namespace tpsim
