// SPDX-License-Identifier: MIT
// Layout expressions as text and tree: `kv*(q:g*d + k:d + v:d)`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <tpsim/layout/detail/text_cursor.hpp>

namespace tpsim {

/// The order of a tensor's rows on disk, before the axes have extents:
///
///     layout := part ('+' part)*               parts follow each other on disk
///     part   := [LABEL ':'] factor ('*' factor)*     factors from the outermost to the innermost
///     factor := AXIS | NUMBER | '(' layout ')'
///
/// A label names the logical tensor whose rows its part holds; a layout without labels holds one
/// tensor, with label "". A label holds a plain product (no parentheses, no further label) and a
/// product has at most one pair of parentheses. In a sum every part has a label. A part of a sum,
/// or of parentheses, that is a bare name without an extent is itself a label, of one row:
/// `i*(gate + up)` means `i*(gate:1 + up:1)` unless `gate` is an axis.
class LayoutExpr {
 public:
  struct Part;
  struct Factor {
    std::string axis;         ///< empty for a number or parentheses
    Index number = 0;         ///< 0 unless a number
    std::vector<Part> group;  ///< empty unless parentheses
    std::size_t column = 0;   ///< place in the text, from 0
  };
  struct Part {
    std::string label;  ///< as written before ':'; empty when there is none
    std::vector<Factor> factors;
    std::size_t column = 0;
    /// A name alone, which is an axis or a label depending on the axes.
    [[nodiscard]] bool bare() const {
      return label.empty() && factors.size() == 1 && !factors.front().axis.empty();
    }
  };

  /// @throws LayoutError with the text, a caret under the column and what was expected there
  [[nodiscard]] static LayoutExpr parse(std::string_view text);

  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  /// As it was given.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Normal form: one blank around '+', none elsewhere.
  /// @post parse(str()) has the same tree
  [[nodiscard]] std::string str() const { return str(parts_); }

  /// Same normal form.
  friend bool operator==(const LayoutExpr& a, const LayoutExpr& b) { return a.str() == b.str(); }

 private:
  LayoutExpr(std::string text, std::vector<Part> parts)
      : text_(std::move(text)), parts_(std::move(parts)) {}

  static std::string str(const std::vector<Part>& parts) {
    std::string out;
    for (const Part& part : parts) {
      if (!out.empty()) out += " + ";
      if (!part.label.empty()) out += part.label + ":";
      bool first = true;
      for (const Factor& f : part.factors) {
        if (!first) out += '*';
        first = false;
        out += !f.axis.empty() ? f.axis
               : f.number != 0 ? std::to_string(f.number)
                               : "(" + str(f.group) + ")";
      }
    }
    return out;
  }

  std::string text_;
  std::vector<Part> parts_;
};

}  // namespace tpsim

#include <tpsim/layout/detail/layout_parser.hpp>
