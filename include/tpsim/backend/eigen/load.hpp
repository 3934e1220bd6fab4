// SPDX-License-Identifier: MIT
// Filling a rectangle of a parameter from a full tensor: numbers are read, or their place is noted.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <tpsim/backend/eigen/param.hpp>

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

/// Puts `pieces` (their rows and columns are the parameter's) into the memory of `param`.
/// @pre param.is_stored()
inline void write_pieces(Param& param, const std::vector<Piece>& pieces, const ValueRule& rule) {
  for (const Piece& p : pieces) {
    const WeightGenerator tensor(rule, *p.tensor);
    std::visit(
        [&](auto& m) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(m)>, std::monostate>) {
            constexpr Index grain = 16;  // rows for one scratch buffer
            const auto cols = static_cast<std::size_t>(p.cols);
            parallel_for((p.rows + grain - 1) / grain, p.rows * p.cols > 1 << 14, [&](Index part) {
              std::vector<float> scratch(cols);
              for (Index i = part * grain; i < std::min(p.rows, (part + 1) * grain); ++i) {
                if (is_zeros(p.tensor))
                  std::fill(scratch.begin(), scratch.end(), 0.0F);
                else
                  tensor.row(p.src_row + i * p.src_stride).fill(p.src_col, p.cols, scratch.data());
                convert_row(param.dtype, scratch.data(), p.cols,
                            m.data() + (p.row + i) * m.cols() + p.col);
              }
            });
          }
        },
        param.storage);
  }
}

/// Gives the parameter memory: poison, and in it what was copied so far.
inline void store(Param& param) {
  if (param.is_stored()) return;
  const auto make = [&](auto nan) {
    using T = decltype(nan);
    std::memcpy(&nan, &param.poison, sizeof nan);
    auto& m = param.storage.template emplace<Matrix<T>>(param.shape.rows(), param.shape.cols());
    parallel_for(m.rows(), m.size() > 1 << 16,
                 [&](Index r) { std::fill_n(m.data() + r * m.cols(), m.cols(), nan); });
  };
  if (is_16bit(param.dtype))
    make(std::uint16_t{});
  else if (param.dtype == DType::f32)
    make(float{});
  else
    make(double{});
  write_pieces(param, param.made, param.values);
  param.made.clear();
}

/// Puts zeros into rows [row, row + rows).
inline void zero_fill(Param& param, Index row, Index rows) {
  const Index cols = param.shape.cols();
  if (param.is_stored())
    write_pieces(param, {{row, 0, rows, cols, zero_rows()}}, param.values);
  else
    overwrite(param.made, row, 0, rows, cols, {{0, 0, rows, cols, zero_rows()}});
}

/// Fills the rectangle. Values are read from several threads at once (their `read` is const).
/// @pre the rectangle is inside both sides
inline void load_rectangle(Param& param, const Rectangle& r, const FullTensor& full,
                           const ValueRule& rule) {
  const Values* values = full.stored().values.get();
  if (values == nullptr) {
    std::vector<Piece> pieces = full.pieces(r.from_row, r.rows, r.from_col, r.columns);
    if (param.is_stored()) {
      for (Piece& p : pieces) p.row += r.row, p.col += r.col;
      return write_pieces(param, pieces, rule);
    }
    param.values = rule;
    return overwrite(param.made, r.row, r.col, r.rows, r.columns, std::move(pieces));
  }
  store(param);
  // One entry for each row, whatever the runs are: an interleaved view is many short ones.
  std::vector<Index> rows;
  for (const Run& run : full.stored_rows().slice(r.from_row, r.rows))
    for (Index i = 0; i < run.length; ++i) rows.push_back(run.at(i));
  std::visit(
      [&](auto& m) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(m)>, std::monostate>) {
          constexpr Index grain = 16;  // rows for one scratch buffer
          const Index parts = (r.rows + grain - 1) / grain;
          parallel_for(parts, r.rows * r.columns > 1 << 14, [&](Index part) {
            std::vector<float> scratch;
            for (Index i = part * grain; i < std::min(r.rows, (part + 1) * grain); ++i)
              read_row(*values, rows[static_cast<std::size_t>(i)], r.from_col, r.columns,
                       param.dtype, m.data() + (r.row + i) * m.cols() + r.col, scratch);
          });
        }
      },
      param.storage);
}

}  // namespace tpsim::eigen
