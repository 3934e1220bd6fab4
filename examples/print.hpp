// SPDX-License-Identifier: MIT
// How the examples print matrices: [[1, 2], [3, 4]].
#pragma once

#include <string>

#include <fmt/format.h>

#include <tpsim/backend/eigen/eigen_backend.hpp>

template <class Element>
std::string matrix_text(tpsim::Index rows, tpsim::Index cols, Element at) {
  std::string out = "[";
  for (tpsim::Index r = 0; r < rows; ++r) {
    out += r == 0 ? "[" : ", [";
    for (tpsim::Index c = 0; c < cols; ++c)
      out += fmt::format("{}{}", c == 0 ? "" : ", ", at(r, c));
    out += "]";
  }
  return out + "]";
}

/// What a rank holds: a weight [out, in]; a bias [out] is one row.
inline std::string text(const tpsim::eigen::Param& p) {
  if (p.shape.rank() == 1)
    return matrix_text(1, p.shape.rows(), [&](auto, auto c) { return p.at(c, 0); });
  return matrix_text(p.shape.rows(), p.shape.cols(), [&](auto r, auto c) { return p.at(r, c); });
}
/// An activation [tokens, columns].
inline std::string text(const tpsim::eigen::Tensor<float>& x) {
  return matrix_text(x.value.rows(), x.value.cols(), [&](auto r, auto c) { return x.value(r, c); });
}

/// [tokens, columns] of ones.
inline tpsim::eigen::Tensor<float> ones(tpsim::EigenBackend<float>& b, tpsim::Index tokens,
                                        tpsim::Index columns) {
  return b.input(tpsim::eigen::Matrix<float>(tpsim::eigen::Matrix<float>::Ones(tokens, columns)));
}
