// SPDX-License-Identifier: MIT
// The row order of a tensor on disk, as runs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// Which disk rows hold which logical tensor's rows: a layout expression whose axes have extents
/// (layout/expression.hpp makes one).
/// @post the labels' rows partition [0, rows())
class RowLayout {
 public:
  struct Part {
    std::string label;
    Runs disk_rows;  ///< element i: the disk row of canonical row i
  };
  explicit RowLayout(std::vector<Part> parts) : parts_(std::move(parts)) {
    for (const Part& part : parts_) rows_ += part.disk_rows.size();
  }

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  /// Disk rows of a label, in its canonical order. @throws LayoutError (names)
  [[nodiscard]] const Runs& rows_of(std::string_view label) const {
    std::string known;
    for (const Part& part : parts_) {
      if (part.label == label) return part.disk_rows;
      known += (known.empty() ? "" : ", ") + part.label;
    }
    throw LayoutError("the layout has no part '" + std::string(label) + "'",
                      {{"names", "its parts are " + known}});
  }

 private:
  std::vector<Part> parts_;
  Index rows_ = 0;
};

}  // namespace tpsim
