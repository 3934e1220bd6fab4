// SPDX-License-Identifier: MIT
// Body for each_isa.hpp: products of a few rows of w with a panel of tokens, and what they add to
// the error.
#ifdef TPSIM_ISA

namespace tpsim::eigen::TPSIM_ISA {

typedef double Doubles __attribute__((vector_size(TPSIM_ISA_BYTES)));
template <class Real>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float Vector __attribute__((vector_size(TPSIM_ISA_BYTES)));
  typedef float Short __attribute__((vector_size(TPSIM_ISA_BYTES / 2)));
};
template <>
struct Lanes<double> {
  typedef Doubles Vector;
  typedef Doubles Short;
};

/// Vectors of tokens that one pass keeps in registers, next to 4 (8 for at most 2) rows of w.
inline constexpr Index most_vectors = TPSIM_ISA_REGISTERS == 32 ? 4 : 2;

/// out[r * stride + t] = (Abs) or += (otherwise) sum over k < n of w[r][k] * x[k * width + t], or
/// of |w[r][k]|.
template <bool Abs, int Rows, int Vectors, class Real>
TPSIM_ISA_TARGET void pass(const Real* const* w, const Real* x, Index n, Real* out, Index stride) {
  typedef typename Lanes<Real>::Vector Vector;
  constexpr Index lanes = sizeof(Vector) / sizeof(Real);
  Vector sum[Rows][Vectors] = {};
  for (Index k = 0; k < n; ++k) {
    Vector token[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      std::memcpy(&token[v], x + (k * Vectors + v) * lanes, sizeof(Vector));
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Real weight = Abs ? std::abs(w[r][k]) : w[r][k];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        Vector product = weight * token[v];
        TPSIM_ROUND(product);
        sum[r][v] += product;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      Real* to = out + r * stride + v * lanes;
      if (!Abs) {
        Vector before;
        std::memcpy(&before, to, sizeof before);
        sum[r][v] = before + sum[r][v];
      }
      std::memcpy(to, &sum[r][v], sizeof(Vector));
    }
}

/// As pass, for kGroup rows and `width` tokens: 1, or 1, 2 or 4 vectors of them.
template <bool Abs, class Real>
TPSIM_ISA_TARGET void panel(const Real* const* w, const Real* x, Index width, Index n, Real* out,
                            Index stride) {
  constexpr Index lanes = sizeof(typename Lanes<Real>::Vector) / sizeof(Real);
  const Index vectors = width / lanes;
  for (Index r = 0; r < kGroup; r += 8, w += 8, out += 8 * stride) {
    if (vectors <= 1) {
      pass<Abs, 8, 1>(w, x, n, out, stride);
    } else if constexpr (most_vectors == 4) {
      if (vectors == 2) {
        pass<Abs, 8, 2>(w, x, n, out, stride);
      } else {
        pass<Abs, 4, 4>(w, x, n, out, stride);
        pass<Abs, 4, 4>(w + 4, x, n, out + 4 * stride, stride);
      }
    } else {
      pass<Abs, 4, 2>(w, x, n, out, stride);
      pass<Abs, 4, 2>(w + 4, x, n, out + 4 * stride, stride);
    }
  }
}

/// error[t] += factor * spread[t] + unit * |total[t]| for `n` tokens.
template <class Real>
TPSIM_ISA_TARGET void add_error(const Real* spread, double factor, const Real* total, double unit,
                                Index n, double* error) {
  typedef typename Lanes<Real>::Short Short;
  constexpr Index lanes = sizeof(Doubles) / sizeof(double);
  Index t = 0;
  for (; t + lanes <= n; t += lanes) {
    Short from, sum;
    Doubles to;
    std::memcpy(&from, spread + t, sizeof from);
    std::memcpy(&sum, total + t, sizeof sum);
    std::memcpy(&to, error + t, sizeof to);
    Doubles a = __builtin_convertvector(from, Doubles) * factor;
    Doubles b = __builtin_convertvector(sum, Doubles) * unit;
    b = b < 0 ? -b : b;
    TPSIM_ROUND(a);
    TPSIM_ROUND(b);
    to += a + b;
    std::memcpy(error + t, &to, sizeof to);
  }
  for (; t < n; ++t) {
    double a = static_cast<double>(spread[t]) * factor;
    double b = std::abs(static_cast<double>(total[t]) * unit);
    TPSIM_ROUND(a);
    TPSIM_ROUND(b);
    error[t] += a + b;
  }
}

/// out[r] = sum over k < n of w[r][k]^2 for kGroup rows: 64 bytes of partial sums, added lane by
/// lane, so that the bits are the same for every instruction set.
template <class Real>
TPSIM_ISA_TARGET void squares(const Real* const* w, Index n, Real* out) {
  typedef typename Lanes<Real>::Vector Vector;
  constexpr Index parts = 64 / sizeof(Vector), lanes = 64 / sizeof(Real);
  for (Index r = 0; r < kGroup; ++r) {
    Vector sum[parts] = {};
    Index k = 0;
    for (; k + lanes <= n; k += lanes)
#pragma GCC unroll 4
      for (Index p = 0; p < parts; ++p) {
        Vector v;
        std::memcpy(&v, w[r] + k + p * (lanes / parts), sizeof v);
        v *= v;
        TPSIM_ROUND(v);
        sum[p] += v;
      }
    Real lane[lanes], total = 0;
    std::memcpy(lane, sum, sizeof lane);
    for (Index i = 0; k < n; ++k, ++i) {
      Real v = w[r][k] * w[r][k];
      TPSIM_ROUND(v);
      lane[i] += v;
    }
    for (const Real v : lane) total += v;
    out[r] = total;
  }
}

/// out[i] = in[i]
inline TPSIM_ISA_TARGET void widen(const float* in, Index n, double* out) {
  typedef Lanes<float>::Short Short;
  constexpr Index lanes = sizeof(Doubles) / sizeof(double);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    Short from;
    std::memcpy(&from, in + i, sizeof from);
    const Doubles to = __builtin_convertvector(from, Doubles);
    std::memcpy(out + i, &to, sizeof to);
  }
  for (; i < n; ++i) out[i] = static_cast<double>(in[i]);
}

template <class Real>
inline constexpr Kernels<Real> kernels = {TPSIM_ISA_BYTES / sizeof(Real),
                                          most_vectors,
                                          panel<false, Real>,
                                          panel<true, Real>,
                                          add_error<Real>,
                                          squares<Real>,
                                          widen};

}  // namespace tpsim::eigen::TPSIM_ISA
#endif
