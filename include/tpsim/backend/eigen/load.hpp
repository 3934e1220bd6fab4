// SPDX-License-Identifier: MIT
// Filling a rectangle of a parameter from a full tensor: read, or generated from the meaning.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <tpsim/backend/eigen/tensor.hpp>
#include <tpsim/backend/eigen/value_rule.hpp>

namespace tpsim::eigen {

/// Where in the parameter, and which rectangle of the view.
struct Rectangle {
  Index row = 0, col = 0;           ///< first element in the parameter
  Index from_row = 0, rows = 0;     ///< rows of the view
  Index from_col = 0, columns = 0;  ///< columns of the view
};

// Numbers as elements of the parameter's type.
inline void convert_row(DType t, const float* in, Index n, std::uint16_t* out) {
  narrow(t, in, n, out);
}
template <class T>
void convert_row(DType /*t*/, const float* in, Index n, T* out) {
  std::copy_n(in, n, out);
}

/// One row through Values; bit for bit when it is stored as the parameter keeps it. An f64 tensor
/// goes to 2 bytes by way of f32, as torch does.
template <class T>
void read_row(const Values& values, Index row, Index col, Index n, DType t, T* out,
              std::vector<float>& scratch) {
  if (values.dtype() == t) {
    const std::span<const std::byte> raw = values.bytes(row, col);
    const std::size_t size = static_cast<std::size_t>(n) * sizeof(T);
    if (raw.size() >= size && size > 0) {
      std::memcpy(out, raw.data(), size);
      return;
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    values.read(row, col, std::span<T>(out, static_cast<std::size_t>(n)));
  } else {
    scratch.resize(static_cast<std::size_t>(n));
    values.read(row, col, std::span<float>(scratch));
    convert_row(t, scratch.data(), n, out);
  }
}

/// Fills the rectangle. Values are read from several threads at once (their `read` is const).
/// @pre the rectangle is inside both sides
inline void load_rectangle(Param& param, const Rectangle& r, const FullTensor& full,
                           const ValueRule& rule) {
  const Values* values = full.stored().values.get();
  // One entry for each row, whatever the runs are: an interleaved view is many short ones.
  std::vector<Index> rows;
  std::vector<const LogicalTensor*> meaning;
  if (values != nullptr) {
    for (const Run& run : full.stored_rows().slice(r.from_row, r.rows))
      for (Index i = 0; i < run.length; ++i) rows.push_back(run.at(i));
  } else {
    for (const Piece& p : full.pieces(r.from_row, r.rows, r.from_col, r.columns))
      for (Index i = 0; i < p.rows; ++i) {
        rows.push_back(p.src_row + i * p.src_stride);
        meaning.push_back(p.tensor.get());
      }
  }
  std::visit(
      [&](auto& m) {
        using T = typename std::decay_t<decltype(m)>::Scalar;
        constexpr Index grain = 16;  // rows for one scratch buffer
        const Index pieces = (r.rows + grain - 1) / grain;
        parallel_for(pieces, r.rows * r.columns > 1 << 14, [&](Index piece) {
          std::vector<float> scratch;
          for (Index i = piece * grain; i < std::min(r.rows, (piece + 1) * grain); ++i) {
            const auto at = static_cast<std::size_t>(i);
            T* out = m.data() + (r.row + i) * m.cols() + r.col;
            if (values != nullptr) {
              read_row(*values, rows[at], r.from_col, r.columns, param.dtype, out, scratch);
              continue;
            }
            const RowGenerator row = RowGenerator::of_weight(rule, *meaning[at], rows[at]);
            if constexpr (std::is_same_v<T, float>) {
              row.fill(r.from_col, r.columns, out);
            } else {
              scratch.resize(static_cast<std::size_t>(r.columns));
              row.fill(r.from_col, r.columns, scratch.data());
              convert_row(param.dtype, scratch.data(), r.columns, out);
            }
          }
        });
      },
      param.storage);
}

}  // namespace tpsim::eigen
