// SPDX-License-Identifier: MIT
// Rotary positions in the exact reading: the turn is written out, its angles are unknown.
#pragma once

#include <bit>
#include <initializer_list>
#include <string>
#include <vector>

#include <tpsim/backend/field/tensor.hpp>
#include <tpsim/backend/rope_spec.hpp>
#include <tpsim/backend/simd/random_rows.hpp>
#include <tpsim/core/random.hpp>

namespace tpsim::detail {

/// Key of the cos and sin of a spec: everything that their values depend on, and nothing else.
/// Not the style: which columns are a pair shows in the turn, so that weights whose rows are
/// permuted for the other style give the same scores. Not the fields that the scaling ignores.
[[nodiscard]] inline std::uint64_t rope_key(std::uint64_t seed, const RopeSpec& s) {
  std::string text = "rope " + std::to_string(s.rotary_dim);
  const auto append = [&](std::initializer_list<double> numbers) {
    for (const double n : numbers) text += " " + std::to_string(std::bit_cast<std::uint64_t>(n));
  };
  append({s.theta, rope_magnitude(s)});
  const bool stretched = s.scaling == RopeScaling::llama3 || s.scaling == RopeScaling::yarn;
  text += " " + std::to_string(static_cast<int>(s.scaling));
  if (s.scaling != RopeScaling::none) append({s.factor});
  if (s.scaling == RopeScaling::llama3) append({s.low_freq_factor, s.high_freq_factor});
  if (s.scaling == RopeScaling::yarn) append({s.beta_fast, s.beta_slow});
  if (stretched) text += " " + std::to_string(s.original_positions);
  return tensor_key(seed, hash_name(text));
}

/// Every head of x [tokens, heads head_dim] turned by its token's position. cos and sin are
/// independent random parameters of (spec, position, pair): nothing is known about how they are
/// related.
[[nodiscard]] inline FieldTensor turned(const FieldTensor& x, const std::vector<Index>& positions,
                                        Index head_dim, const RopeSpec& spec, std::uint64_t seed) {
  const std::uint64_t key = rope_key(seed, spec);
  const Index pairs = spec.rotary_dim / 2;
  std::vector<gf61::Element> table(static_cast<std::size_t>(2 * pairs));  // cos, then sin
  FieldTensor out = x;
  for (Index t = 0; t < x.tokens; ++t) {
    random_rows::fill_residues(row_key(key, positions[static_cast<std::size_t>(t)]), 0, 2 * pairs,
                               table.data());
    for (Index head = 0; head < x.cols; head += head_dim)
      for (Index j = 0; j < pairs; ++j) {
        const auto [first, second] = rope_pair(spec, j);
        const gf61::Element a = x.at(t, head + first), b = x.at(t, head + second);
        const gf61::Element cos = table[static_cast<std::size_t>(j)];
        const gf61::Element sin = table[static_cast<std::size_t>(pairs + j)];
        out.row(t)[head + first] = gf61::sub(gf61::mul(a, cos), gf61::mul(b, sin));
        out.row(t)[head + second] = gf61::add(gf61::mul(b, cos), gf61::mul(a, sin));
      }
  }
  return out;
}

}  // namespace tpsim::detail
