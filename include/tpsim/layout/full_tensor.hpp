// SPDX-License-Identifier: MIT
// A full tensor as the checkpoint has it, and what each of its rows stands for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/core/random.hpp>
#include <tpsim/layout/runs.hpp>

namespace tpsim {

/// A tensor as the model means it (q_proj.weight), in its own canonical row order, wherever the
/// checkpoint keeps it. Backends address elements by (key, canonical row, column).
struct LogicalTensor {
  LogicalTensor(std::string tensor_name, Shape tensor_shape)
      : name(std::move(tensor_name)), shape(tensor_shape), key(hash_name(name)) {}
  std::string name;
  Shape shape;
  std::uint64_t key;
};
using Logical = std::shared_ptr<const LogicalTensor>;

/// Stands for the rows of zeros that a parameter has beside the checkpoint's: padding.
[[nodiscard]] inline const Logical& zero_rows() {
  static const Logical zeros = std::make_shared<LogicalTensor>("zeros", Shape(0, 0));
  return zeros;
}
[[nodiscard]] inline bool is_zeros(const Logical& tensor) { return tensor == zero_rows(); }

/// A rectangle that came from a logical tensor: element (row + i, col + j) of the destination is
/// element (src_row + i * src_stride, src_col + j) of `tensor`. `tensor` is never null.
struct Piece {
  Index row = 0, col = 0, rows = 0, cols = 0;
  Logical tensor;
  Index src_row = 0, src_col = 0, src_stride = 1;
};

/// The stored rows [begin, begin + length) hold the canonical rows src_begin, src_begin + stride,
/// ... of `tensor`.
struct RowIdentity {
  Index begin = 0, length = 0;
  Logical tensor;
  Index src_begin = 0, src_stride = 1;
};

/// Numbers of a stored tensor, by stored row and column. Implementations: a mapped safetensors
/// file, a matrix in memory, a generator.
class Values {
 public:
  virtual ~Values() = default;
  /// Fills `out` with the elements (row, col), (row, col + 1), ... The caller stays in bounds.
  virtual void read(Index row, Index col, std::span<float> out) const = 0;
  virtual void read(Index row, Index col, std::span<double> out) const = 0;
  /// How the elements are stored: f64, f32, bf16 or f16.
  [[nodiscard]] virtual DType dtype() const = 0;
  /// Raw bytes of the elements from (row, col) to the end of that row, or empty when there are
  /// none (generated values). Little-endian, packed.
  [[nodiscard]] virtual std::span<const std::byte> bytes(Index /*row*/, Index /*col*/) const {
    return {};
  }
};

/// What a checkpoint holds under one name: a shape, the meaning of each stored row, and the
/// numbers (null for readings that need none, or generate them from the meaning).
struct StoredTensor {
  std::string name;
  Shape shape;
  std::vector<RowIdentity> identity;  ///< sorted, covers [0, rows) exactly
  std::shared_ptr<const Values> values;
};

/// What a weight_loader receives: a view of some stored rows, in some order, all columns.
class FullTensor {
 public:
  explicit FullTensor(std::shared_ptr<const StoredTensor> stored)
      : stored_(std::move(stored)), rows_(Runs::range(0, stored_->shape.rows())) {}
  FullTensor(std::shared_ptr<const StoredTensor> stored, Runs rows)
      : stored_(std::move(stored)), rows_(std::move(rows)) {}

  [[nodiscard]] const std::string& name() const { return stored_->name; }
  [[nodiscard]] Shape shape() const { return stored_->shape.with(0, rows_.size()); }
  [[nodiscard]] const StoredTensor& stored() const { return *stored_; }
  [[nodiscard]] const Runs& stored_rows() const { return rows_; }

  /// The rows at `positions` of this view, in that order.
  /// @throws LayoutError (cover) when a position is outside
  [[nodiscard]] FullTensor rows(const Runs& positions) const {
    for (const Run& p : positions)
      if (p.begin < 0 || p.last() < 0 || p.begin >= rows_.size() || p.last() >= rows_.size())
        throw LayoutError(name() + " has no rows " + Runs(positions).str(),
                          {{"cover", name() + " has " + std::to_string(rows_.size()) + " rows"}});
    return {stored_, rows_.select(positions)};
  }

  /// Where the elements of rows [row, row + rows) x columns [col, col + cols) come from, placed
  /// with their first element at (0, 0), top to bottom; neighbours are merged.
  /// @throws LayoutError (cover) when the rectangle is not inside the view
  [[nodiscard]] std::vector<Piece> pieces(Index row, Index rows, Index col, Index cols) const {
    const Shape s = shape();
    if (row < 0 || rows < 0 || col < 0 || cols < 0 || row > s.rows() - rows ||
        col > s.cols() - cols)
      throw LayoutError("a copy reads outside " + name(),
                        {{"cover", "rows " + Runs::range(row, row + rows).str() + ", columns " +
                                       Runs::range(col, col + cols).str() + " of " + s.str()}});
    std::vector<Piece> out;
    for (const Run& run : rows_.slice(row, rows)) append_identity(run, col, cols, out);
    return out;
  }

 private:
  void append_identity(const Run& run, Index col, Index cols, std::vector<Piece>& out) const {
    const std::vector<RowIdentity>& ids = stored_->identity;
    Index done = 0;
    while (done < run.length) {
      const Index stored_row = run.at(done);
      auto it = std::upper_bound(ids.begin(), ids.end(), stored_row,
                                 [](Index r, const RowIdentity& id) { return r < id.begin; });
      const RowIdentity& id = *--it;
      // How many further elements of the run stay inside this identity segment.
      Index take = 1;
      if (run.stride > 0)
        take =
            std::min(run.length - done, (id.begin + id.length - 1 - stored_row) / run.stride + 1);
      add(out, {0, 0, take, cols, id.tensor, id.src_begin + (stored_row - id.begin) * id.src_stride,
                col, id.src_stride * run.stride});
      done += take;
    }
  }

  static void add(std::vector<Piece>& out, Piece next) {
    next.row = out.empty() ? 0 : out.back().row + out.back().rows;
    if (next.rows == 1) next.src_stride = 1;
    if (!out.empty() && out.back().tensor == next.tensor) {
      Piece& last = out.back();
      const Index step = next.src_row - (last.src_row + (last.rows - 1) * last.src_stride);
      if (step > 0 && (last.rows == 1 || step == last.src_stride) &&
          (next.rows == 1 || step == next.src_stride)) {
        last.src_stride = step;
        last.rows += next.rows;
        return;
      }
    }
    out.push_back(std::move(next));
  }

  std::shared_ptr<const StoredTensor> stored_;
  Runs rows_;
};

}  // namespace tpsim
