// SPDX-License-Identifier: MIT
// bfloat16 and IEEE half as 2-byte words, and how far a rounding may move a number.
#pragma once

#include <bit>
#include <cstdint>

#include <tpsim/core/shape.hpp>

namespace tpsim::eigen {

/// To nearest, ties to even; overflow gives infinity; subnormals are kept; a NaN stays a (quiet)
/// NaN with its sign and upper payload.
[[nodiscard]] constexpr std::uint16_t to_bf16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (u >> 16U) | 0x40U;
  return static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}
[[nodiscard]] constexpr float from_bf16(std::uint16_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) << 16U);
}

/// As to_bf16, for IEEE half: 65520 and above give infinity.
/// Source: F. Giesen, float_to_half_fast3_rtne.
[[nodiscard]] constexpr std::uint16_t to_f16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16U) & 0x8000U, a = u & 0x7fffffffU;
  // Normal: new exponent bias, then half an ulp (less one when even); a carry may reach infinity.
  const std::uint32_t normal = (a - (112U << 23U) + 0xfffU + ((a >> 13U) & 1U)) >> 13U;
  // Subnormal: adding 0.5 leaves the rounded half's mantissa in the low bits.
  const float tiny = std::bit_cast<float>(a < (113U << 23U) ? a : 0U);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(tiny + 0.5F) - 0x3f000000U;
  const std::uint32_t huge = a > 0x7f800000U ? 0x7e00U | ((a >> 13U) & 0x3ffU) : 0x7c00U;
  const std::uint32_t out = a >= (143U << 23U) ? huge : a < (113U << 23U) ? subnormal : normal;
  return static_cast<std::uint16_t>(sign | out);
}
[[nodiscard]] constexpr float from_f16(std::uint16_t word) {
  const std::uint32_t w = word, sign = (w & 0x8000U) << 16U, a = (w & 0x7fffU) << 13U;
  // Normal: new exponent bias. Subnormal: one exponent more, then 2^-14 less. Both without float
  // subnormals, which processors handle slowly.
  const std::uint32_t normal = a + (112U << 23U);
  const float lifted = std::bit_cast<float>(a + (113U << 23U)) - 0x1p-14F;
  // Masks instead of branches: compilers then vectorise the loops that call this.
  const std::uint32_t subnormal = 0U - static_cast<std::uint32_t>(a < (1U << 23U));
  const std::uint32_t finite =
      normal ^ ((normal ^ std::bit_cast<std::uint32_t>(lifted)) & subnormal);
  const std::uint32_t top = a >= (31U << 23U) ? 0x7f800000U : 0U;
  return std::bit_cast<float>(sign | finite | top);
}

/// Is the type kept as 2-byte words?
[[nodiscard]] constexpr bool is_16bit(DType t) { return t == DType::bf16 || t == DType::f16; }

[[nodiscard]] constexpr std::uint16_t to_word(DType t, float value) {
  return t == DType::bf16 ? to_bf16(value) : to_f16(value);
}
[[nodiscard]] constexpr float from_word(DType t, std::uint16_t word) {
  return t == DType::bf16 ? from_bf16(word) : from_f16(word);
}

/// `n` numbers from words and back; the choice of type is outside the loop so that it vectorises.
template <class Real>
void widen(DType t, const std::uint16_t* in, Index n, Real* out) {
  if (t == DType::bf16)
    for (Index i = 0; i < n; ++i) out[i] = static_cast<Real>(from_bf16(in[i]));
  else
    for (Index i = 0; i < n; ++i) out[i] = static_cast<Real>(from_f16(in[i]));
}
inline void narrow(DType t, const float* in, Index n, std::uint16_t* out) {
  if (t == DType::bf16)
    for (Index i = 0; i < n; ++i) out[i] = to_bf16(in[i]);
  else
    for (Index i = 0; i < n; ++i) out[i] = to_f16(in[i]);
}

/// Rounds `n` numbers to the type in place; f32 and f64 change nothing.
inline void round_to(DType t, float* values, Index n) {
  if (t == DType::bf16)
    for (Index i = 0; i < n; ++i) values[i] = from_bf16(to_bf16(values[i]));
  else if (t == DType::f16)
    for (Index i = 0; i < n; ++i) values[i] = from_f16(to_f16(values[i]));
}

/// One rounding to nearest: |rnd(v) - v| <= unit * |rnd(v)| + eta (the second standard model;
/// eta, half the smallest subnormal or more, is for results that underflow).
struct Rounding {
  double unit = 0, eta = 0;
};
[[nodiscard]] constexpr Rounding rounding_of(DType t) {
  switch (t) {
    case DType::f64:
      return {0x1p-53, 0x1p-1074};
    case DType::f32:
      return {0x1p-24, 0x1p-150};
    case DType::bf16:
      return {0x1p-8, 0x1p-134};
    case DType::f16:
      return {0x1p-11, 0x1p-25};
    default:
      return {};
  }
}
/// A result computed with one rounding to f32 and then stored as `t`.
[[nodiscard]] constexpr Rounding rounded_twice(DType t) {
  const Rounding f32 = rounding_of(DType::f32), store = rounding_of(t);
  return {store.unit + 2 * f32.unit, 2 * store.eta + f32.eta};
}

}  // namespace tpsim::eigen
