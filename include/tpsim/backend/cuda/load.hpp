// SPDX-License-Identifier: MIT
// Numbers on their way to the device: read or made on the host, row by row, into pinned buffers.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include <tpsim/backend/cuda/tensor.hpp>
#include <tpsim/backend/eigen/load.hpp>

namespace tpsim::detail {

/// Fills `to` through the device's staging buffers, as many whole rows at a time as one holds, or a
/// part of a row. `fill_row(row, col, n, out, scratch)` puts n elements of `to`'s type at `out`; it
/// is called from several threads.
template <class T, class FillRow>
void send_rows(cuda::Device& device, const cuda::Matrix& to, const FillRow& fill_row) {
  if (to.rows == 0 || to.cols == 0) return;
  constexpr Index room = cuda::Device::staging_bytes / static_cast<Index>(sizeof(T));
  const Index width = std::min(to.cols, room), height = std::max<Index>(1, room / to.cols);
  for (Index row = 0; row < to.rows; row += height)
    for (Index col = 0; col < to.cols; col += width) {
      const Index rows = std::min(height, to.rows - row), cols = std::min(width, to.cols - col);
      auto* const staged = static_cast<T*>(device.staging());
      constexpr Index grain = 16;  // rows for one scratch buffer
      eigen::parallel_for((rows + grain - 1) / grain, rows * cols > 1 << 14, [&](Index part) {
        std::vector<float> scratch;
        for (Index i = part * grain; i < std::min(rows, (part + 1) * grain); ++i)
          fill_row(row + i, col, cols, staged + i * cols, scratch);
      });
      device.send(cuda::part_of(to, row, rows, col, cols));
    }
}

/// The rectangle of `full` with this first element goes to `to`: stored bytes as they are where
/// their type is the device's, other numbers rounded to it; of a tensor without numbers those that
/// `rule` makes.
template <class T>
void load_rows_as(cuda::Device& device, const cuda::Matrix& to, const FullTensor& full,
                  Index from_row, Index from_col, const eigen::ValueRule& rule) {
  const DType type = dtype_of(to.type);
  if (const Values* values = full.stored().values.get()) {
    std::vector<Index> rows;  // an entry each, whatever the runs are
    for (const Run& run : full.stored_rows().slice(from_row, to.rows))
      for (Index i = 0; i < run.length; ++i) rows.push_back(run.at(i));
    return send_rows<T>(device, to,
                        [&](Index row, Index col, Index n, T* out, std::vector<float>& scratch) {
                          eigen::read_row(*values, rows[static_cast<std::size_t>(row)],
                                          from_col + col, n, type, out, scratch);
                        });
  }
  const std::vector<Piece> pieces = full.pieces(from_row, to.rows, from_col, to.cols);
  struct Source {
    const Piece* piece;
    eigen::WeightGenerator tensor;
  };
  std::vector<Source> sources;
  for (const Piece& p : pieces) sources.push_back({&p, eigen::WeightGenerator(rule, *p.tensor)});
  send_rows<T>(device, to, [&](Index row, Index col, Index n, T* out, std::vector<float>& scratch) {
    const auto after =
        std::upper_bound(sources.begin(), sources.end(), row,
                         [](Index wanted, const Source& s) { return wanted < s.piece->row; });
    const Source& from = *(after - 1);
    scratch.assign(static_cast<std::size_t>(n), 0.0F);
    if (!is_zeros(from.piece->tensor))
      from.tensor.row(from.piece->src_row + (row - from.piece->row) * from.piece->src_stride)
          .fill(from.piece->src_col + col, n, scratch.data());
    eigen::convert_row(type, scratch.data(), n, out);
  });
}

inline void load_rows(cuda::Device& device, const cuda::Matrix& to, const FullTensor& full,
                      Index from_row, Index from_col, const eigen::ValueRule& rule) {
  if (to.type == cuda::Type::f32)
    load_rows_as<float>(device, to, full, from_row, from_col, rule);
  else
    load_rows_as<std::uint16_t>(device, to, full, from_row, from_col, rule);
}

/// `numbers`, row by row, rounded to `to`'s type.
inline void send_numbers(cuda::Device& device, const cuda::Matrix& to, const float* numbers) {
  const auto send = [&](auto zero) {
    using T = decltype(zero);
    send_rows<T>(device, to, [&](Index row, Index col, Index n, T* out, std::vector<float>&) {
      eigen::convert_row(dtype_of(to.type), numbers + row * to.cols + col, n, out);
    });
  };
  if (to.type == cuda::Type::f32)
    send(float{});
  else
    send(std::uint16_t{});
}

/// The numbers of a matrix, row by row; waits for the device.
[[nodiscard]] inline std::vector<float> fetch_numbers(cuda::Device& device,
                                                      const cuda::ConstMatrix& from) {
  const auto size = static_cast<std::size_t>(from.size());
  std::vector<float> numbers(size);
  if (from.type == cuda::Type::f32) {
    device.download(from, numbers.data());
  } else {
    std::vector<std::uint16_t> words(size);
    device.download(from, words.data());
    eigen::widen(dtype_of(from.type), words.data(), from.size(), numbers.data());
  }
  return numbers;
}

}  // namespace tpsim::detail
