// SPDX-License-Identifier: MIT
// Small tools for tests of the exact backend's decoder operations.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <tpsim/backend/field/field_backend.hpp>

namespace tpsim::testing {

inline constexpr std::uint64_t decoder_seed = 11;

inline FieldBackend field_backend(Weakening weakening = Weakening::none, int tp_rank = 0) {
  return {std::make_shared<FieldContext>(FieldContext{decoder_seed, weakening}), tp_rank};
}

inline FieldTensor summed(FieldBackend& b, const std::vector<FieldTensor>& parts) {
  std::vector<const FieldTensor*> all;
  for (const FieldTensor& part : parts) all.push_back(&part);
  return b.reduce(Reduction::sum, all);
}
inline FieldTensor joined(FieldBackend& b, const std::vector<FieldTensor>& parts, int dim) {
  std::vector<const FieldTensor*> all;
  for (const FieldTensor& part : parts) all.push_back(&part);
  return b.concat(all, dim);
}
inline FieldTensor mean(FieldBackend& b, const FieldTensor& x, const FieldTensor& y) {
  return b.scale(b.add(x, y), Rational(1, 2));
}

/// Column c of the result is column order[c] of x.
inline FieldTensor permuted(const FieldTensor& x, const std::vector<Index>& order) {
  FieldTensor out(x.tokens, static_cast<Index>(order.size()));
  for (Index t = 0; t < x.tokens; ++t)
    for (Index c = 0; c < out.cols; ++c)
      out.row(t)[c] = x.at(t, order[static_cast<std::size_t>(c)]);
  return out;
}

inline bool differ_everywhere(const FieldTensor& x, const FieldTensor& y) {
  if (x.tokens != y.tokens || x.cols != y.cols || x.values.empty()) return false;
  for (std::size_t i = 0; i < x.values.size(); ++i)
    if (x.values[i] == y.values[i]) return false;
  return true;
}

}  // namespace tpsim::testing
