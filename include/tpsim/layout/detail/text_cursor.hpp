// SPDX-License-Identifier: MIT
// Reading of one-line texts from untrusted files; errors show the text with a caret.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <tpsim/core/shape.hpp>

namespace tpsim::detail {

/// Largest number of rows, and largest number written out, in layouts and cuts: products of two
/// such numbers are checked before they are made, sums of a few stay inside an Index.
inline constexpr Index max_layout_rows = Index{1} << 48;

/// Longest text read, in bytes.
inline constexpr std::size_t max_text = 1024;

/// a * b <= max_layout_rows, for positive a and b?
[[nodiscard]] constexpr bool product_fits(Index a, Index b) { return a <= max_layout_rows / b; }

/// The text, indented, and under it a caret for each column (counted from 0, rising). Bytes that
/// are not printable ASCII appear as '?', one each, so that the carets stay in place.
[[nodiscard]] inline std::string with_carets(std::string_view text,
                                             std::span<const std::size_t> columns) {
  constexpr std::size_t window = 120, before = 60;
  const std::size_t first = columns.empty() ? 0 : columns.front();
  const std::size_t start = text.size() > window && first > before ? first - before : 0;
  std::string shown(text.substr(start, window)), carets;
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  for (const std::size_t column : columns) {
    if (column < start || column > start + window) continue;
    carets.resize(std::max(carets.size(), column - start), ' ');
    if (carets.size() == column - start) carets += '^';
  }
  return "    " + shown + "\n    " + carets;
}

/// A position in a text. Words are [A-Za-z_][A-Za-z0-9_]*, numbers decimal; blanks are skipped
/// before every token.
class TextCursor {
 public:
  /// @param kind  what the text is, for messages: "layout", "cut"
  /// @throws LayoutError when the text is longer than max_text
  TextCursor(std::string_view text, std::string_view kind) : text_(text), kind_(kind) {
    if (text.size() > max_text)
      throw LayoutError("a " + kind_ + " of " + std::to_string(text.size()) +
                        " characters is too long: the limit is " + std::to_string(max_text));
  }

  /// Column of the next token.
  [[nodiscard]] std::size_t column() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_;
  }
  [[nodiscard]] bool at_end() { return column() == text_.size(); }
  [[nodiscard]] char peek() { return at_end() ? '\0' : text_[at_]; }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  /// The word here, or empty.
  [[nodiscard]] std::string word() {
    const std::size_t start = column();
    if (start < text_.size() && is_digit(text_[start])) return {};
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }
  [[nodiscard]] bool at_number() { return is_digit(peek()); }
  /// The number here, from 1 to max_layout_rows. @throws LayoutError for any other
  [[nodiscard]] Index number() {
    const std::size_t start = column();
    if (!at_number()) fail(start, "expected a number");
    Index value = 0;
    for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > max_layout_rows)
        fail(start, "expected a number up to " + std::to_string(max_layout_rows));
    }
    if (value == 0) fail(start, "expected a number from 1");
    return value;
  }

  [[noreturn]] void fail(std::size_t column, const std::string& what) const {
    const std::size_t columns[] = {column};
    throw LayoutError("cannot read the " + kind_ + ": " + what + "\n" +
                      with_carets(text_, columns));
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }

  std::string_view text_;
  std::string kind_;
  std::size_t at_ = 0;
};

}  // namespace tpsim::detail
