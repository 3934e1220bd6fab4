// SPDX-License-Identifier: MIT
// What float32 modules of torch give: exact results, and a bound on the rounding that torch adds.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim::test {

using Reference = Subject::Reference;
inline constexpr double float_unit = 0x1p-24;  // unit roundoff of float32

/// x w^T + b in double, with a bound on what torch's float32 adds: for n = in + 1 products and
/// sums, in any order and with or without fused operations, gamma_n (|x| |w|^T + |b|) where
/// gamma_n = n u / (1 - n u), and 2^-149 for each product that underflows. The error that x brings
/// is carried along. Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1.
[[nodiscard]] inline Reference::Tensor torch_linear(Reference& b, const Reference::Tensor& x,
                                                    const FullParams<Reference>& t,
                                                    const std::string& prefix) {
  const eigen::Param& w = t.at(prefix + "weight");
  Reference::Tensor y = full_linear(b, x, t, prefix);
  const double n = static_cast<double>(x.value.cols()) + 1,
               gamma = n * float_unit / (1 - n * float_unit);
  for (Index token = 0; token < y.value.rows(); ++token)
    for (Index row = 0; row < y.value.cols(); ++row) {
      const auto bias = t.find(prefix + "bias");
      double sum = bias == t.end() ? 0 : std::abs(bias->second.at(row, 0));
      for (Index k = 0; k < x.value.cols(); ++k)
        sum += (std::abs(x.value(token, k)) + x.bound_at(token, k)) * std::abs(w.at(row, k));
      y.bound(token, row) += gamma * sum + n * 0x1p-149;
    }
  return y;
}
/// A function that torch evaluates with a relative error of `units` units.
[[nodiscard]] inline Reference::Tensor torch_rounds(Reference::Tensor y, double units) {
  y.bound.array() += units * float_unit * (y.value.array().abs() + y.bound.array());
  return y;
}
/// What torch's float32 modules give, one result each, with its bound. Torch's exp is within one
/// unit in the last place (2 u); with the sum, the quotient and their product under 6 u in silu.
[[nodiscard]] inline std::vector<Reference::Tensor> torch_modules(Reference& b,
                                                                  const LayerSpec& spec,
                                                                  const Reference::Tensor& x,
                                                                  const FullParams<Reference>& t) {
  std::vector<std::string> prefixes{""};
  if (spec.layer == "qkv") prefixes = {"q_proj.", "k_proj.", "v_proj."};
  if (spec.layer == "merged" || spec.layer == "mlp") prefixes = {"gate_proj.", "up_proj."};
  std::vector<Reference::Tensor> out;
  for (const std::string& prefix : prefixes) out.push_back(torch_linear(b, x, t, prefix));
  if (spec.layer != "mlp") return out;
  const auto gate = torch_rounds(b.silu(out[0]), 6);
  return {torch_linear(b, torch_rounds(b.mul(gate, out[1]), 1), t, "down_proj.")};
}

}  // namespace tpsim::test
