// SPDX-License-Identifier: MIT
// The operations of cuda::Device that are one kernel body each. Included once by the file that
// implements the rest, after it has declared how bodies run:
//   template <class Body> void each(Device::State&, const Body&);     // body(lane)
//   template <class Body> void by_rows(Device::State&, const Body&);  // body(row, lane, all)
#pragma once

#include <tpsim/backend/cuda/bodies/activation.hpp>
#include <tpsim/backend/cuda/bodies/argmax.hpp>
#include <tpsim/backend/cuda/bodies/pointwise.hpp>
#include <tpsim/backend/cuda/bodies/reduce.hpp>
#include <tpsim/backend/cuda/bodies/rotary.hpp>
#include <tpsim/backend/cuda/bodies/softmax.hpp>
#include <tpsim/backend/cuda/bodies/statistics.hpp>
#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::cuda {

void Device::fill(Matrix out, std::uint32_t bits) { each(*state_, body::Fill{out, bits}); }
void Device::add(ConstMatrix a, ConstMatrix b, Matrix out) { each(*state_, body::Add{a, b, out}); }
void Device::mul(ConstMatrix a, ConstMatrix b, Matrix out) { each(*state_, body::Mul{a, b, out}); }
void Device::add_bias(ConstMatrix y, ConstMatrix bias, Matrix out) {
  each(*state_, body::AddBias{y, bias, out});
}
void Device::mul_columns(ConstMatrix x, ConstMatrix w, Matrix out) {
  each(*state_, body::MulColumns{x, w, out});
}
void Device::times(ConstMatrix x, double factor, Matrix out) {
  each(*state_, body::Times{x, factor, out});
}
void Device::keep_tokens(ConstMatrix x, const std::uint8_t* keep, Matrix out) {
  each(*state_, body::KeepTokens{x, keep, out});
}
void Device::lookup(ConstMatrix table, const Size* rows, Matrix out) {
  each(*state_, body::Lookup{table, rows, out});
}
void Device::activate(Activation f, ConstMatrix x, Matrix out) {
  each(*state_, body::Activate{x, f, out});
}
void Device::row_sums(ConstMatrix x, bool squares, Matrix out) {
  by_rows(*state_, body::RowSums{x, squares, out});
}
void Device::centered(ConstMatrix x, ConstMatrix sums, double count, Matrix out) {
  each(*state_, body::Centered{x, sums, count, out});
}
void Device::rms_normalized(ConstMatrix x, ConstMatrix square_sums, double count, double eps,
                            Matrix out) {
  each(*state_, body::RmsNormalized{x, square_sums, count, eps, out});
}
void Device::rope(ConstMatrix x, const double* turns, Size head_dim, Size pairs, bool interleaved,
                  Matrix out) {
  each(*state_, body::Rope{x, turns, head_dim, pairs, interleaved, out});
}
void Device::softmax(ConstMatrix products, const SoftmaxSpec& s, Matrix weights) {
  by_rows(*state_, body::Softmax{products, s.tokens, s.first_position, s.window, s.scale, s.slopes,
                                 s.sinks, weights});
}
void Device::largest(ConstMatrix x, Size first_id, float none, Matrix out) {
  by_rows(*state_, body::Largest{x, first_id, none, out});
}
void Device::best_of(ConstMatrix pairs, float none, Matrix out) {
  each(*state_, body::BestOf{pairs, none, out});
}
void Device::sum_over_ranks(const void* const* parts, Size count, SumOrder order, Matrix out) {
  each(*state_, body::SumOverRanks{parts, count, order, out});
}
void Device::max_over_ranks(const void* const* parts, Size count, Matrix out) {
  each(*state_, body::MaxOverRanks{parts, count, out});
}

}  // namespace tpsim::cuda
