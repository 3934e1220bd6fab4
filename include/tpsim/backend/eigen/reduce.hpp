// SPDX-License-Identifier: MIT
// Sums over ranks in the orders and roundings that engines have, with their running bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/eigen/reduce_order.hpp>
#include <tpsim/backend/eigen/tensor.hpp>

namespace tpsim {
namespace eigen {

/// Whose part is added as the `hop`-th (0: it starts the sum) to element `at` of `size`, row by
/// row. @pre 0 <= hop < ranks
[[nodiscard]] constexpr Index rank_at_hop(ReduceOrder order, Index hop, Index ranks, Index at,
                                          Index size) {
  if (order != ReduceOrder::ring) return hop;
  const Index chunk = at / ((size + ranks - 1) / ranks);
  return (chunk + 1 + hop) % ranks;
}

/// Is every part wide? Then so is what is made of them.
template <class Real>
[[nodiscard]] bool all_wide(std::span<const Tensor<Real>* const> parts) {
  return std::all_of(parts.begin(), parts.end(), [](const auto* part) { return part->wide; });
}

/// The sum of the parts (at least one, of equal shapes, their elements numbers of `rule`, or all
/// wide: then the type that the model has rounds nothing).
///
/// With a_1 = l_o1 and a_j = rnd(a_{j-1} + l_oj) in the order o of the element:
///   rank, ring: |a_R - exact| <= sum_r e_r + u_hop sum_{j>1} |a_j|, where e_r bounds the error of
///     l_r and u_hop is the unit roundoff of the rule: adding in Real and then rounding to 16 bits
///     is one rounding, since p + 2 significant bits twice fit into f32 (8 and 11 against 24);
///     Figueroa, When is double rounding innocuous?, SIGNUM Newsletter 30(3), 1995.
///   f32: |y - exact| <= sum_r e_r + u_Real sum_{j>1} |a_j| + u_rule |y|, the last one only where
///     there are several parts and the rule is narrower than Real.
/// No term for underflow: numbers of the rule are multiples of its smallest subnormal, and so is
/// their sum: where it is subnormal it is exact. The bound is 0 where nothing can round.
///
/// @param hops  false leaves the collective's own terms out: for a test that the bound needs them
template <class Real>
[[nodiscard]] Tensor<Real> reduce_sum(std::span<const Tensor<Real>* const> parts, DType rule,
                                      DType own, ReduceOrder order, bool track, bool hops = true) {
  const auto ranks = static_cast<Index>(parts.size());
  const Index size = parts[0]->value.size();
  const bool wide = all_wide(parts), narrow = is_16bit(rule) && own == DType::f32 && !wide;
  const bool each = narrow && order != ReduceOrder::f32;  // does every hop round to the rule?
  const double unit_hop = rounding_of(each ? rule : own).unit,
               unit_store = narrow && !each && ranks > 1 ? rounding_of(rule).unit : 0;
  Tensor<Real> out{Matrix<Real>(parts[0]->value.rows(), parts[0]->value.cols()), {}, wide};
  if (track) out.bound.setZero(out.value.rows(), out.value.cols());
  // One run of elements that are added in the same order.
  const Index run = order == ReduceOrder::ring ? (size + ranks - 1) / ranks : size;
  for (Index begin = 0; begin < size; begin += run) {
    const Index n = std::min(run, size - begin);
    const auto part = [&](Index hop) -> const Tensor<Real>& {
      return *parts[static_cast<std::size_t>(rank_at_hop(order, hop, ranks, begin, size))];
    };
    Real* a = out.value.data() + begin;
    double* e = track ? out.bound.data() + begin : nullptr;
    const auto store = [&](double unit, bool round) {
      if constexpr (std::is_same_v<Real, float>)
        if (round) round_to(rule, a, n);
      if (track && hops)
        for (Index i = 0; i < n; ++i) e[i] += unit * std::abs(static_cast<double>(a[i]));
    };
    std::copy_n(part(0).value.data() + begin, n, a);
    for (Index hop = 1; hop < ranks; ++hop) {
      const Real* l = part(hop).value.data() + begin;
      for (Index i = 0; i < n; ++i) a[i] += l[i];
      store(unit_hop, each);
    }
    if (unit_store > 0) store(unit_store, true);
    if (!track) continue;
    for (const Tensor<Real>* p : parts)
      if (p->has_bound())
        for (Index i = 0; i < n; ++i) e[i] += p->bound.data()[begin + i];
    // The additions above: at most 3 for each rank, 512 ranks, in double.
    for (Index i = 0; i < n; ++i) e[i] *= 1 + 0x1p-40;
  }
  return out;
}

/// The largest of the parts; a NaN wins, from either side. Its bound is the largest part's.
template <class Real>
[[nodiscard]] Tensor<Real> reduce_max(std::span<const Tensor<Real>* const> parts, bool track) {
  Tensor<Real> out = *parts[0];
  out.wide = all_wide(parts);
  if (!track)
    out.bound.resize(0, 0);
  else if (!out.has_bound())
    out.bound.setZero(out.value.rows(), out.value.cols());
  for (const Tensor<Real>* part : parts.subspan(1)) {
    out.value = out.value.binaryExpr(part->value,
                                     [](Real x, Real y) { return y > x || std::isnan(y) ? y : x; });
    if (track && part->has_bound()) out.bound = out.bound.cwiseMax(part->bound);
  }
  return out;
}

}  // namespace eigen
}  // namespace tpsim
