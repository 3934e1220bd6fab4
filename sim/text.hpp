// SPDX-License-Identifier: MIT
// Text for terminals: its width, and lines that fit.
#pragma once

#include <string>
#include <vector>

namespace tpsim::cli {

/// Terminal columns of UTF-8 text, every code point taken as one column wide.
[[nodiscard]] std::size_t width_of(const std::string& text);

/// `text` and blanks up to `width` columns.
[[nodiscard]] std::string pad(const std::string& text, std::size_t width);

/// `text` in lines of at most `width` columns. Breaks at blanks, and at every newline; a word that
/// is too long stays whole.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text, std::size_t width);

/// The same as one text, the later lines after `indent` blanks, all within 80 columns; the first
/// starts in column `first`.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t first, std::size_t indent);

/// `head` and `text` as a paragraph: later lines begin below the text's first, and it ends with a
/// newline.
[[nodiscard]] std::string line(const std::string& head, const std::string& text);

/// Text inside XML and HTML. Control characters, not legal in XML 1.0 at all, become blanks.
[[nodiscard]] std::string escaped(const std::string& text);

/// "512 B", "1.5 KiB", up to TiB.
[[nodiscard]] std::string binary_size(double bytes);

}  // namespace tpsim::cli
