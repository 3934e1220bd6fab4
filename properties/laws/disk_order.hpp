// SPDX-License-Identifier: MIT
// Law: a fused tensor loads to the same params as its parts do, whatever its order on disk.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// The fused tensor is written row by row from loops (disk_orders.hpp), so that the layout
/// expression is under test as well. Says nothing about a layer that is never fused.
[[nodiscard]] inline Verdict fused_loads_equal_part_wise_loads(const Candidate& candidate,
                                                               const Case& c) {
  Verdict out;
  Case separate = c;
  separate.spec.disk.clear();
  const std::vector<DiskOrder> orders = disk_orders(c.spec);
  if (orders.empty()) return out;
  const std::unique_ptr<Subject> parts = candidate.subject(separate);
  const ElementTags tags(*parts);
  std::vector<DiskTensor> tensors;
  for (const DiskTensor& t : parts->tensors) tensors.push_back(tagged(t, tags));
  const LoadedParams part_wise = load_params(*parts, tensors, out.because);
  out.variation = separate;
  if (!out.because.empty()) return out;

  for (const DiskOrder& order : orders) {
    Case fused = c;
    fused.spec.disk = order.expression;
    const std::unique_ptr<Subject> subject = candidate.subject(fused);
    tensors.clear();
    for (const DiskTensor& t : subject->tensors) {
      if (t.logical.size() == 1) {
        tensors.push_back(tagged(t, tags));
        continue;
      }
      tensors.push_back(tagged(t, tags, [&](Index row) {
        const auto& [label, canonical] = order.owners.at(static_cast<std::size_t>(row));
        std::size_t k = 0;
        while (t.layout.parts().at(k).label != label) ++k;
        return std::pair<Logical, Index>(t.logical[k], canonical);
      }));
    }
    std::string differs;
    const LoadedParams loaded = load_params(*subject, tensors, differs);
    if (differs.empty()) differs = compare_params(part_wise, loaded, out.compared);
    if (differs.empty()) continue;
    out.because = "fused on disk as " + order.expression + ": " + differs;
    out.variation = fused;
    return out;
  }
  return out;
}

}  // namespace tpsim::properties
