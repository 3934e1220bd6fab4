// SPDX-License-Identifier: MIT
// Rotary position embedding: which columns of a head turn together, and how fast.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <tpsim/core/error.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim {

/// Which two columns of the rotary part are one pair: j and j + rotary/2, or 2 j and 2 j + 1.
enum class RopeStyle : std::uint8_t { half_split, interleaved };
enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn };

/// Frequencies are computed in double. Source: Su et al., RoFormer (2021); scalings as in
/// transformers `modeling_rope_utils.py` (llama3), Peng et al., YaRN (2023).
struct RopeSpec {
  Index rotary_dim = 0;  ///< leading columns of a head that turn; the others stay
  RopeStyle style = RopeStyle::half_split;
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  double attention_factor = 0;   ///< yarn: of cos and sin; 0: 0.1 ln(factor) + 1
  Index original_positions = 0;  ///< llama3, yarn: original_max_position_embeddings
  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

[[nodiscard]] inline std::vector<Violation> rope_violations(const RopeSpec& s, Index head_dim) {
  std::vector<Violation> v;
  if (s.rotary_dim <= 0 || s.rotary_dim % 2 != 0 || s.rotary_dim > head_dim)
    v.push_back({"heads", "the rotary part is " + std::to_string(s.rotary_dim) +
                              " columns of a head of " + std::to_string(head_dim) +
                              "; it must be even, at least 2 and no more than the head"});
  if (!(s.theta > 0)) v.push_back({"divide", "rope_theta must be positive"});
  if (s.scaling != RopeScaling::none && !(s.factor > 0))
    v.push_back({"divide", "the rope scaling's factor must be positive"});
  if ((s.scaling == RopeScaling::llama3 || s.scaling == RopeScaling::yarn) &&
      s.original_positions <= 0)
    v.push_back({"names", "the rope scaling needs original_max_position_embeddings"});
  if (s.scaling == RopeScaling::llama3 && !(s.high_freq_factor > s.low_freq_factor))
    v.push_back({"divide", "high_freq_factor must be greater than low_freq_factor"});
  return v;
}

/// The columns of pair j of a head's rotary part.
struct RopePair {
  Index first = 0, second = 0;
};
[[nodiscard]] constexpr RopePair rope_pair(const RopeSpec& s, Index j) {
  return s.style == RopeStyle::half_split ? RopePair{j, j + s.rotary_dim / 2}
                                          : RopePair{2 * j, 2 * j + 1};
}

/// Radians per position of each pair, [rotary_dim / 2].
[[nodiscard]] inline std::vector<double> rope_frequencies(const RopeSpec& s) {
  const Index pairs = s.rotary_dim / 2;
  const double dim = static_cast<double>(s.rotary_dim);
  const double turn = 2 * std::numbers::pi, length = static_cast<double>(s.original_positions);
  // yarn: the pair that makes `rotations` turns over the original length
  const auto pair_of = [&](double rotations) {
    return dim * std::log(length / (rotations * turn)) / (2 * std::log(s.theta));
  };
  const double low = std::max(std::floor(pair_of(s.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(s.beta_slow)), dim - 1);
  if (low == high) high += 0.001;
  std::vector<double> out;
  for (Index j = 0; j < pairs; ++j) {
    const double plain = std::pow(s.theta, -2.0 * static_cast<double>(j) / dim);
    const double slow = plain / s.factor;
    switch (s.scaling) {
      case RopeScaling::none:
        out.push_back(plain);
        break;
      case RopeScaling::linear:
        out.push_back(slow);
        break;
      case RopeScaling::llama3: {
        const double turns = length * plain / turn;  // over the original length
        const double smooth = std::clamp(
            (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
        out.push_back((1 - smooth) * slow + smooth * plain);
        break;
      }
      case RopeScaling::yarn: {
        const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
        out.push_back(slow * ramp + plain * (1 - ramp));
        break;
      }
    }
  }
  return out;
}

/// What cos and sin are multiplied with.
[[nodiscard]] inline double rope_magnitude(const RopeSpec& s) {
  if (s.scaling != RopeScaling::yarn) return 1;
  if (s.attention_factor > 0) return s.attention_factor;
  return s.factor <= 1 ? 1 : 0.1 * std::log(s.factor) + 1;
}

}  // namespace tpsim
