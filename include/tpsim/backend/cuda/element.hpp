// SPDX-License-Identifier: MIT
// One element of a matrix: read as f32, rounded when it is written. Plain C++17.
//
// The conversions are those of backend/eigen/float16.hpp, which is C++20: the same bits on the
// device and on the host, whatever instructions the device has. A test compares them, word by word.
#pragma once

#include <cstring>

#include <tpsim/backend/cuda/matrix.hpp>

namespace tpsim::cuda {

TPSIM_HOST_DEVICE inline std::uint32_t bits_of(float value) {
  std::uint32_t out;
  memcpy(&out, &value, sizeof out);
  return out;
}
TPSIM_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/// To nearest, ties to even; a NaN stays a quiet NaN with its upper payload.
TPSIM_HOST_DEVICE inline std::uint16_t to_bf16(float value) {
  const std::uint32_t u = bits_of(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U);
}
TPSIM_HOST_DEVICE inline float from_bf16(std::uint16_t word) {
  return float_of(static_cast<std::uint32_t>(word) << 16U);
}
/// As to_bf16, for IEEE half: 65520 and above give infinity, subnormals are kept.
TPSIM_HOST_DEVICE inline std::uint16_t to_f16(float value) {
  const std::uint32_t u = bits_of(value), sign = (u >> 16U) & 0x8000U, a = u & 0x7fffffffU;
  std::uint32_t out;
  if (a >= (143U << 23U))
    out = a > 0x7f800000U ? 0x7e00U | ((a >> 13U) & 0x3ffU) : 0x7c00U;
  else if (a < (113U << 23U))
    out = bits_of(float_of(a) + 0.5F) - 0x3f000000U;  // rounds to a multiple of 2^-24
  else
    out = (a - (112U << 23U) + 0xfffU + ((a >> 13U) & 1U)) >> 13U;
  return static_cast<std::uint16_t>(sign | out);
}
TPSIM_HOST_DEVICE inline float from_f16(std::uint16_t word) {
  const std::uint32_t w = word, sign = (w & 0x8000U) << 16U, a = (w & 0x7fffU) << 13U;
  if (a >= (31U << 23U)) return float_of(sign | 0x7f800000U | (a & 0x7fffffU));
  if (a >= (1U << 23U)) return float_of(sign | (a + (112U << 23U)));
  return float_of(sign | bits_of(float_of(a + (113U << 23U)) - float_of(113U << 23U)));
}

/// Element `i` of n = cols * rows elements, row by row, as it lies in memory.
TPSIM_HOST_DEVICE inline Size place(const ConstMatrix& m, Size i) {
  return m.has_gaps() ? i / m.cols * m.stride + i % m.cols : i;
}
TPSIM_HOST_DEVICE inline float load_word(Type t, const void* data, Size at) {
  if (t == Type::f32) return static_cast<const float*>(data)[at];
  const std::uint16_t word = static_cast<const std::uint16_t*>(data)[at];
  return t == Type::bf16 ? from_bf16(word) : from_f16(word);
}
TPSIM_HOST_DEVICE inline void store_word(Type t, void* data, Size at, float value) {
  if (t == Type::f32)
    static_cast<float*>(data)[at] = value;
  else
    static_cast<std::uint16_t*>(data)[at] = t == Type::bf16 ? to_bf16(value) : to_f16(value);
}
TPSIM_HOST_DEVICE inline float load(const ConstMatrix& m, Size i) {
  return load_word(m.type, m.data, place(m, i));
}
TPSIM_HOST_DEVICE inline float load(const ConstMatrix& m, Size row, Size col) {
  return load_word(m.type, m.data, row * m.stride + col);
}
TPSIM_HOST_DEVICE inline void store(const Matrix& m, Size i, float value) {
  store_word(m.type, m.data, place(m, i), value);
}
TPSIM_HOST_DEVICE inline void store(const Matrix& m, Size row, Size col, float value) {
  store_word(m.type, m.data, row * m.stride + col, value);
}
/// As the type keeps it.
TPSIM_HOST_DEVICE inline float rounded_to(Type t, float value) {
  return t == Type::f32    ? value
         : t == Type::bf16 ? from_bf16(to_bf16(value))
                           : from_f16(to_f16(value));
}

}  // namespace tpsim::cuda
