// SPDX-License-Identifier: MIT
// The numeric backend's activations between processes: as bytes, and as numbers that MPI sums.
#pragma once

#include <cmath>
#include <span>
#include <type_traits>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/backend/eigen/precision.hpp>
#include <tpsim/backend/eigen/tensor.hpp>
#include <tpsim/comm/communicator.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim::eigen {

template <class T>
[[nodiscard]] std::span<const T> numbers_of(const Matrix<T>& m) {
  return {m.data(), static_cast<std::size_t>(m.size())};
}

template <class Real>
[[nodiscard]] Bytes pack(const Tensor<Real>& x) {
  ByteWriter w;
  w.put(static_cast<Index>(x.value.rows()));
  w.put(static_cast<Index>(x.value.cols()));
  w.put(x.wide);
  w.put_all(numbers_of(x.value));
  w.put_all(numbers_of(x.bound));
  return std::move(w.bytes);
}
/// @throws std::length_error for bytes that are no packed tensor of this type
template <class Real>
[[nodiscard]] Tensor<Real> unpack(std::span<const std::byte> bytes) {
  ByteReader r(bytes);
  Tensor<Real> x;
  const auto rows = r.get<Index>(), cols = r.get<Index>();
  x.wide = r.get<bool>();
  x.value.resize(rows, cols);
  r.get_all(std::span<Real>(x.value.data(), static_cast<std::size_t>(x.value.size())));
  const std::vector<double> bound = r.get_vector<double>();
  if (!bound.empty()) x.bound = Eigen::Map<const Matrix<double>>(bound.data(), rows, cols);
  return x;
}

/// Numbers that may be summed over the ranks in any order: the values, and of a tracked tensor its
/// bounds and magnitudes. None of one that rounds to 16 bits at every hop: the order is part of
/// that sum's meaning.
template <class Real>
[[nodiscard]] TensorOps::Summands summands(const Precision<Real>& precision,
                                           const Tensor<Real>& x) {
  TensorOps::Summands out;
  if (is_16bit(precision.rule) && std::is_same_v<Real, float> && !x.wide) return out;
  const std::span<const Real> values = numbers_of(x.value);
  if constexpr (std::is_same_v<Real, float>)
    out.singles.assign(values.begin(), values.end());
  else
    out.doubles.assign(values.begin(), values.end());
  if (!precision.track_bounds) return out;
  const std::span<const double> bounds = numbers_of(x.bound);
  if (bounds.empty())
    out.doubles.resize(out.doubles.size() + values.size());
  else
    out.doubles.insert(out.doubles.end(), bounds.begin(), bounds.end());
  for (const Real v : values) out.doubles.push_back(std::abs(static_cast<double>(v)));
  return out;
}

/// The sum of tensors l_r with bounds e_r over R ranks in any order or tree:
///   |y - exact| <= sum_r e_r + gamma_{R-1} sum_r |l_r|,  gamma_n = n u / (1 - n u).
/// Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 4.2. The sums of bounds
/// and magnitudes are in double, at most 4096 terms: 1 + 2^-40 covers their own rounding.
template <class Real>
[[nodiscard]] Tensor<Real> from_sums(const Precision<Real>& precision, const Tensor<Real>& like,
                                     const TensorOps::Summands& sums, int ranks) {
  Tensor<Real> out;
  out.wide = like.wide;
  const Index rows = like.value.rows(), cols = like.value.cols();
  const Real* values = nullptr;
  const double* rest = sums.doubles.data();
  if constexpr (std::is_same_v<Real, float>)
    values = sums.singles.data();
  else
    values = rest, rest += like.value.size();
  out.value = Eigen::Map<const Matrix<Real>>(values, rows, cols);
  if (!precision.track_bounds) return out;
  const double n = ranks - 1, u = rounding_of(Precision<Real>::own_type).unit;
  const double gamma = n * u / (1 - n * u);
  const Eigen::Map<const Matrix<double>> bounds(rest, rows, cols),
      magnitudes(rest + like.value.size(), rows, cols);
  out.bound = (bounds + gamma * magnitudes) * (1 + 0x1p-40);
  return out;
}

}  // namespace tpsim::eigen
