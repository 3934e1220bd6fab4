// SPDX-License-Identifier: MIT
// How far a product of the device may be from the exact one, whatever order cuBLAS adds in.
#pragma once

#include <tpsim/backend/cuda/matrix.hpp>
#include <tpsim/core/shape.hpp>

namespace tpsim::cuda {

/// |computed - exact| <= product_error(...) sum |x| |w| for a sum of `n` products kept in f32,
/// before it is stored as another type; underflow apart.
///
/// f32: n u with u = 2^-24, for any order and any way of cutting the sum, fused or not. Source:
///   Jeannerod, Rump, Improved error bounds for inner products in floating-point arithmetic, SIAM
///   J. Matrix Anal. Appl. 34 (2013).
/// bf16, f16: tensor cores. Products are exact; a block of m of them and the sum so far are aligned
///   to the largest, cut to at least 24 bits and added: each of m + 1 addends loses less than 2 u
///   of the largest, so a block loses 2 (m + 1) u sum |.| and n / m blocks no more than 4 n u, at m
///   = 1, where it is the most; 1 / (1 - 4 n u) for the sizes of computed sums. Source: Fasi,
///   Higham, Mikaitis, Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Comput. Sci. 7
///   (2021): truncation, no normalization inside a block. What later GPUs do is known by experiment
///   alone.
/// tf32: factors are cut to 11 bits first, 2^-10 each; then as tensor cores.
[[nodiscard]] constexpr double product_error(Index n, Type type, bool tf32 = false) {
  const double terms = static_cast<double>(n) * 0x1p-24;
  if (type == Type::f32 && !tf32) return terms;
  const double cores = 4 * terms / (4 * terms < 0.5 ? 1 - 4 * terms : 0.5);
  return type != Type::f32 ? cores : cores * (1 + 0x1p-8) + 0x1p-9 + 0x1p-19;
}

}  // namespace tpsim::cuda
