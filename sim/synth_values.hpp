// SPDX-License-Identifier: MIT
// Random weights for a whole model, scaled so that activations stay near 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim::cli {

/// Element (row, col) of a tensor is a function of the seed, the tensor's name on disk, row and
/// col; of a vector, col is 0. Uniform in an interval:
///
///     matrix       mean 0, standard deviation 1 / sqrt(columns)
///     norm weight  mean 1, standard deviation 0.1
///     bias, other vectors: 0.05 to 0.15 of either sign, so that none is 0
class SynthValues {
 public:
  SynthValues(const std::vector<ModelTensor>& tensors, DType dtype, std::uint64_t seed);

  /// As FillTensor wants it; `tensor` is an index of the list. Safe from several threads.
  void fill(std::size_t tensor, Index element, std::span<std::byte> out) const;

 private:
  enum class Kind : std::uint8_t { matrix, norm, bias };
  struct Rule {
    std::uint64_t key = 0;
    Index cols = 1;
    Kind kind = Kind::matrix;
    float factor = 1;  // of a matrix: of a whole number in [-2^23, 2^23)
  };
  void row(const Rule& rule, Index row, Index col, std::span<float> out) const;

  std::vector<Rule> rules_;
  DType dtype_;
};

}  // namespace tpsim::cli
