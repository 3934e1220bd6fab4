// SPDX-License-Identifier: MIT
// Statistics of rows in the exact reading. A sum is exact, so the shares of the ranks add up to
// that of the whole; a mean divides by the integer that the code uses.
#pragma once

#include <algorithm>
#include <string>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/field/tensor.hpp>

namespace tpsim::detail {

/// of(x, n) of each group of columns: x [tokens, groups n] -> [tokens, groups].
template <class F>
[[nodiscard]] FieldTensor field_statistics(const FieldTensor& x, Index group, F of) {
  FieldTensor out(x.tokens, statistics_groups(x.cols, group));
  const Index width = x.cols / out.cols;
  for (Index t = 0; t < x.tokens; ++t)
    for (Index g = 0; g < out.cols; ++g) out.row(t)[g] = of(x.row(t) + g * width, width);
  return out;
}

[[nodiscard]] inline gf61::Element sum(const gf61::Element* x, Index n) {
  gf61::Wide all = 0;
  for (Index c = 0; c < n; ++c) all += x[c];
  return gf61::fold(all);
}

[[nodiscard]] inline gf61::Element sum_of_squares(const gf61::Element* x, Index n) {
  gf61::Element all = 0;
  for (Index begin = 0; begin < n; begin += gf61::max_products) {
    gf61::Wide squares = all;
    for (Index c = begin; c < std::min<Index>(n, begin + gf61::max_products); ++c)
      squares += static_cast<gf61::Wide>(x[c]) * x[c];
    all = gf61::fold(squares);
  }
  return all;
}

/// f(element, its group's statistic) of every element of x [tokens, cols].
/// @throws LayoutError (heads)
template <class F>
[[nodiscard]] FieldTensor with_statistics(const FieldTensor& x, const FieldTensor& statistics,
                                          F f) {
  const Index width =
      require_statistics_fit({x.tokens, x.cols}, {statistics.tokens, statistics.cols});
  FieldTensor out(x.tokens, x.cols);
  for (Index t = 0; t < x.tokens; ++t)
    for (Index c = 0; c < x.cols; ++c) out.row(t)[c] = f(x.row(t)[c], statistics.row(t)[c / width]);
  return out;
}

/// 1 / count. @throws LayoutError (divide) for no elements: another seed would not help
[[nodiscard]] inline gf61::Element inverse_count(Index count) {
  if (count <= 0)
    throw LayoutError("a mean over no elements",
                      {{"divide", "the count is " + std::to_string(count)}});
  return gf61::inverse(gf61::residue(count));
}

/// x [tokens, n rows] by w [rows]: column c times w[c % rows].
[[nodiscard]] inline FieldTensor times_columns(const FieldTensor& x, const FieldTensor& w) {
  FieldTensor out(x.tokens, x.cols);
  const Index rows = w.tokens;
  for (Index t = 0; t < x.tokens; ++t)
    for (Index c = 0; c < x.cols; ++c) out.row(t)[c] = gf61::mul(x.row(t)[c], w.row(c % rows)[0]);
  return out;
}

}  // namespace tpsim::detail
