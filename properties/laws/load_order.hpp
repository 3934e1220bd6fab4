// SPDX-License-Identifier: MIT
// Law: the order in which a checkpoint's tensors arrive does not matter.
#pragma once

#include <properties/laws/observe.hpp>

namespace tpsim::properties {

/// Reversed, each tensor first, and shuffled; says nothing about a checkpoint of one tensor.
[[nodiscard]] inline Verdict load_order_does_not_matter(const Candidate& candidate, const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  const ElementTags tags(*subject);
  std::vector<DiskTensor> tensors;
  for (const DiskTensor& t : subject->tensors) tensors.push_back(tagged(t, tags));
  Verdict out;
  if (tensors.size() < 2) return out;
  const LoadedParams in_order = load_params(*subject, tensors, out.because);
  if (!out.because.empty()) return out;

  const auto try_order = [&](const std::vector<DiskTensor>& order) {
    if (!out.because.empty()) return;
    std::string order_text, differs;
    for (const DiskTensor& t : order)
      order_text += (order_text.empty() ? "" : ", ") + t.stored->name;
    const LoadedParams loaded = load_params(*subject, order, differs);
    if (differs.empty()) differs = compare_params(in_order, loaded, out.compared);
    if (!differs.empty()) out.because = "loaded as " + order_text + ": " + differs;
  };
  std::vector<DiskTensor> order(tensors.rbegin(), tensors.rend());
  try_order(order);
  for (std::size_t first = 1; first < tensors.size(); ++first) {
    order = tensors;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first),
                order.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    try_order(order);
  }
  order = tensors;
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[mix(c.seed * 64 + i) % i]);
  try_order(order);
  return out;
}

}  // namespace tpsim::properties
