// SPDX-License-Identifier: MIT
#include "sim/text.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tpsim::cli {
namespace {

constexpr std::size_t columns = 80;

std::vector<std::string> broken_lines(const std::string& text, std::size_t first,
                                      std::size_t later) {
  std::vector<std::string> lines;
  std::string line;
  bool empty = true;
  const auto room = [&] { return lines.empty() ? first : later; };
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!empty && width_of(line) + 1 + width_of(word) > room()) {
      lines.push_back(line);
      line = word;
    } else {
      line += (empty ? "" : " ") + word;
    }
    empty = false;
    if (end < text.size() && text[end] == '\n') {
      lines.push_back(line);
      line.clear();
      empty = true;
    }
    begin = end + 1;
  }
  lines.push_back(line);
  return lines;
}

}  // namespace

std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string pad(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, width_of(text)), ' ');
}

std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  return broken_lines(text, width, width);
}

std::string wrapped(const std::string& text, std::size_t first, std::size_t indent) {
  std::string out;
  for (const std::string& line : broken_lines(text, columns - first, columns - indent))
    out += (out.empty() ? "" : "\n" + std::string(indent, ' ')) + line;
  return out;
}

std::string line(const std::string& head, const std::string& text) {
  return head + wrapped(text, width_of(head), width_of(head)) + "\n";
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;
    else
      out += ' ';
  }
  return out;
}

std::string binary_size(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace tpsim::cli
