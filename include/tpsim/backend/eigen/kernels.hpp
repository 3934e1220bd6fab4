// SPDX-License-Identifier: MIT
// The inner loops of the numeric product, for the widest vectors of the machine.
//
// Lanes hold tokens (or, for one token, rows), and each element is added up column by column, with
// its products rounded: the bits are the same for every instruction set.
#pragma once

#include <cmath>
#include <cstring>

#include <tpsim/backend/simd/isa.hpp>
#include <tpsim/core/shape.hpp>

// Compilers may fuse a product with the sum that takes it, which skips a rounding. Passing it
// through an empty assembly statement forbids that whatever the flags, at no cost.
#if defined(__GNUC__) && defined(__x86_64__)
#define TPSIM_ROUND(value) __asm__("" : "+v"(value))
#elif defined(__GNUC__) && defined(__aarch64__)
#define TPSIM_ROUND(value) __asm__("" : "+w"(value))
#else
#define TPSIM_ROUND(value) static_cast<void>(value)
#endif

namespace tpsim::eigen {

inline constexpr Index kBlock = 256;  // columns that are summed before a block sum is added
inline constexpr Index kGroup = 16;   // output columns of one pass over x

/// w: kGroup rows; x: n columns of `width` tokens side by side; out: kGroup rows of `width`, the
/// next one `stride` further.
template <class Real>
struct Kernels {
  using Panel = void (*)(const Real* const* w, const Real* x, Index width, Index n, Real* out,
                         Index stride);
  using AddError = void (*)(const Real* spread, double factor, const Real* total, double unit,
                            Index n, double* error);
  using Widen = void (*)(const float* in, Index n, double* out);
  using Squares = void (*)(const Real* const* w, Index n, Real* out);

  Index lanes;         ///< tokens in one vector
  Index most_vectors;  ///< that one panel may be wide, a power of 2
  Panel add_block;     ///< out += x w^T
  Panel magnitudes;    ///< out = x |w|^T
  AddError add_error;  ///< error += factor * spread + |unit * total|
  Squares squares;     ///< out[row] = sum of w^2
  Widen widen;         ///< out = in
};

// One token: vectors of 16 bytes hold rows. Their columns come together in registers; that is
// bound by memory with any instruction set.
template <class Real>
struct Rows;
template <>
struct Rows<float> {
  typedef float Vector __attribute__((vector_size(16)));
};
template <>
struct Rows<double> {
  typedef double Vector __attribute__((vector_size(16)));
};

#if defined(__clang__)
#define TPSIM_SHUFFLE(Mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TPSIM_SHUFFLE(Mask, a, b, ...) __builtin_shuffle(a, b, Mask{__VA_ARGS__})
#endif

/// columns[i] of the square whose rows are given.
inline void transpose(const Rows<float>::Vector (&row)[4], Rows<float>::Vector (&column)[4]) {
  typedef int Mask __attribute__((vector_size(16), unused));
  using V = Rows<float>::Vector;
  const V a = TPSIM_SHUFFLE(Mask, row[0], row[1], 0, 4, 1, 5);
  const V b = TPSIM_SHUFFLE(Mask, row[0], row[1], 2, 6, 3, 7);
  const V c = TPSIM_SHUFFLE(Mask, row[2], row[3], 0, 4, 1, 5);
  const V d = TPSIM_SHUFFLE(Mask, row[2], row[3], 2, 6, 3, 7);
  column[0] = TPSIM_SHUFFLE(Mask, a, c, 0, 1, 4, 5);
  column[1] = TPSIM_SHUFFLE(Mask, a, c, 2, 3, 6, 7);
  column[2] = TPSIM_SHUFFLE(Mask, b, d, 0, 1, 4, 5);
  column[3] = TPSIM_SHUFFLE(Mask, b, d, 2, 3, 6, 7);
}
inline void transpose(const Rows<double>::Vector (&row)[2], Rows<double>::Vector (&column)[2]) {
  typedef long long Mask __attribute__((vector_size(16), unused));
  column[0] = TPSIM_SHUFFLE(Mask, row[0], row[1], 0, 2);
  column[1] = TPSIM_SHUFFLE(Mask, row[0], row[1], 1, 3);
}
#undef TPSIM_SHUFFLE

/// As Kernels::magnitudes (Abs) or add_block for one token.
template <bool Abs, class Real>
void single_token(const Real* const* w, const Real* x, Index /*width*/, Index n, Real* out,
                  Index stride) {
  typedef typename Rows<Real>::Vector Vector;
  constexpr int lanes = sizeof(Vector) / sizeof(Real), parts = 16 / lanes;
  for (Index first = 0; first < kGroup; first += lanes * parts) {
    Vector sum[parts] = {};
    Index k = 0;
    for (; k + lanes <= n; k += lanes)
#pragma GCC unroll 8
      for (int p = 0; p < parts; ++p) {
        Vector row[lanes], column[lanes];
#pragma GCC unroll 4
        for (int i = 0; i < lanes; ++i) std::memcpy(&row[i], w[first + p * lanes + i] + k, 16);
        transpose(row, column);
#pragma GCC unroll 4
        for (int i = 0; i < lanes; ++i) {
          if constexpr (Abs) column[i] = column[i] < 0 ? -column[i] : column[i];
          Vector product = column[i] * x[k + i];
          TPSIM_ROUND(product);
          sum[p] += product;
        }
      }
    for (; k < n; ++k)
      for (int p = 0; p < parts; ++p)
        for (int i = 0; i < lanes; ++i) {
          const Real weight = w[first + p * lanes + i][k];
          Real product = (Abs ? std::abs(weight) : weight) * x[k];
          TPSIM_ROUND(product);
          sum[p][i] += product;
        }
    for (int p = 0; p < parts; ++p)
      for (int i = 0; i < lanes; ++i) {
        Real& to = out[(first + p * lanes + i) * stride];
        to = Abs ? sum[p][i] : to + sum[p][i];
      }
  }
}

}  // namespace tpsim::eigen

#define TPSIM_ISA_BODY <tpsim/backend/eigen/product_body.hpp>
#include <tpsim/backend/simd/each_isa.hpp>
#undef TPSIM_ROUND

namespace tpsim::eigen {

/// @pre has_isa(isa)
template <class Real>
[[nodiscard]] const Kernels<Real>& kernels_for(Isa isa) {
#ifdef TPSIM_HAS_ISAS
  if (isa == Isa::avx512) return avx512::kernels<Real>;
  if (isa == Isa::avx2) return avx2::kernels<Real>;
#endif
  static_cast<void>(isa);
  return baseline::kernels<Real>;
}

}  // namespace tpsim::eigen
