// SPDX-License-Identifier: MIT
// Entries in another order than declared that are no fault: the same order on both sides of every
// product that they meet in.
#pragma once

#include <algorithm>

#include <tpsim/verify/held.hpp>
#include <tpsim/verify/report.hpp>

namespace tpsim::detail {

/// Is this the layer's only weight, and cut by columns where every rank is given the whole input?
/// Then its partner is what the layer itself takes of the input.
[[nodiscard]] inline bool cuts_its_own_input(const Subject& subject, const std::string& param) {
  bool columns = false;
  for (const DeclaredParam& p : subject.params) {
    if (p.name != param && p.full_shape.rank() == 2) return false;
    columns = columns || (p.name == param && p.tp_dim == 1);
  }
  for (const Runs& mine : subject.input_columns)
    columns = columns && mine.is_range(0, subject.input_width);
  return columns;
}

/// Does every param that `order` complains of have its declared size, and partners to agree with?
[[nodiscard]] inline bool have_partners(const Subject& subject, const std::vector<HeldRank>& held,
                                        const CheckResult& order) {
  const auto partnered = [&](const std::string& param) {
    for (const std::vector<Partner>& group : subject.partners)
      for (const Partner& p : group)
        if (p.param == param && group.size() > 1) return true;
    return cuts_its_own_input(subject, param);
  };
  for (const Finding& f : order.findings)
    if (!partnered(f.tensor)) return false;
  for (std::size_t p = 0; p < subject.params.size(); ++p)
    for (std::size_t r = 0; r < held.size(); ++r) {
      Index rows = 0;
      for (const DeclaredPart& part : subject.params[p].parts) rows += part.rows[r].size();
      if (held[r][p].shape.rows() != rows) return false;
    }
  return true;
}

/// The rows of gate and up and the columns of down may lie in any order, on any rank, as long as it
/// is the same order: only where every element is held the declared number of times (cover),
/// partners agree, and every rank ends with full()'s values (heads, state) does `order` become a
/// remark. A parameter without partners has to be as declared.
/// Source: consistent permutations of intermediate channels and of kv groups are equivalent
/// programs; checkpoints trained at one tp contain them.
/// Returns whether it did.
inline bool excuse_permutation(const Subject& subject, const std::vector<HeldRank>& held,
                               std::vector<CheckResult>& checks) {
  const auto find = [&](std::string_view id) {
    return std::find_if(checks.begin(), checks.end(),
                        [&](const CheckResult& c) { return c.id == id; });
  };
  const auto order = find("order");
  if (order == checks.end() || order->findings.empty()) return false;
  for (const char* id : {"cover", "state"})
    if (const auto c = find(id); c == checks.end() || c->compared == 0) return false;
  for (const CheckResult& c : checks)
    if (c.id != "order" && !c.findings.empty()) return false;
  if (!have_partners(subject, held, *order)) return false;
  order->message =
      "another order than declared, the same for all partners: an equivalent permutation (" +
      order->findings.front().message + ")";
  order->findings.clear();
  return true;
}

}  // namespace tpsim::detail
