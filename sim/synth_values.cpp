// SPDX-License-Identifier: MIT
#include "sim/synth_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/simd/random_rows.hpp>
#include <tpsim/core/random.hpp>

namespace tpsim::cli {
namespace {

constexpr Index block = 4096;  // elements at a time, so that they stay in the first-level cache
constexpr float unit = 0x1p-23F;

// Constants of 24 bits times 24 random bits are exact in a double: with or without a fused
// multiply-add, the same bytes.
constexpr float norm_spread = 0.17320508F;  // 0.1 * sqrt(3)

void store(DType dtype, std::span<const float> values, std::byte* out) {
  const auto n = values.size();
  if (dtype == DType::f32) {
    std::memcpy(out, values.data(), n * sizeof(float));
  } else if (dtype == DType::f64) {
    for (std::size_t i = 0; i < n; ++i) {
      const double wide = values[i];
      std::memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
  } else {
    std::array<std::uint16_t, block> words;  // NOLINT(*-member-init): written before it is read
    eigen::narrow(dtype, values.data(), static_cast<Index>(n), words.data());
    std::memcpy(out, words.data(), n * sizeof(std::uint16_t));
  }
}

}  // namespace

SynthValues::SynthValues(const std::vector<ModelTensor>& tensors, DType dtype, std::uint64_t seed)
    : dtype_(dtype) {
  for (const ModelTensor& t : tensors) {
    Rule rule;
    rule.key = tensor_key(seed, hash_name(t.name));
    rule.cols = t.shape.cols();
    if (t.bound->rank == 1)
      rule.kind = !t.name.ends_with(".bias") && t.param.find("norm") != std::string::npos
                      ? Kind::norm
                      : Kind::bias;
    // A uniform number in [-1, 1) has a standard deviation of 1 / sqrt(3).
    rule.factor =
        static_cast<float>(std::sqrt(3.0 / static_cast<double>(std::max<Index>(rule.cols, 1)))) *
        unit;
    rules_.push_back(rule);
  }
}

void SynthValues::row(const Rule& rule, Index row, Index col, std::span<float> out) const {
  const std::uint64_t key = row_key(rule.key, row);
  const auto n = static_cast<Index>(out.size());
  if (rule.kind == Kind::matrix)
    return random_rows::fill_uniform(key, col, n, rule.factor, out.data());
  random_rows::fill_uniform(key, col, n, unit, out.data());
  for (float& value : out) {
    const double u = value;
    value = static_cast<float>(rule.kind == Kind::norm ? 1 + u * norm_spread
                               : u < 0                 ? u * 0.1F - 0.05
                                                       : u * 0.1F + 0.05);
  }
}

void SynthValues::fill(std::size_t tensor, Index element, std::span<std::byte> out) const {
  const Rule& rule = rules_[tensor];
  const Index size = bytes_of(dtype_), end = element + static_cast<Index>(out.size()) / size;
  std::array<float, block> values;  // NOLINT(*-member-init): written before it is read
  Index held = 0;                   // of `values`: short rows are stored together
  std::byte* to = out.data();
  const auto flush = [&] {
    store(dtype_, std::span(values).first(static_cast<std::size_t>(held)), to);
    to += held * size;
    held = 0;
  };
  while (element < end) {
    const Index r = element / rule.cols, c = element % rule.cols;
    const Index n = std::min({rule.cols - c, end - element, block - held});
    row(rule, r, c,
        std::span(values).subspan(static_cast<std::size_t>(held), static_cast<std::size_t>(n)));
    element += n, held += n;
    if (held == block) flush();
  }
  flush();
}

}  // namespace tpsim::cli
