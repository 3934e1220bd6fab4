// SPDX-License-Identifier: MIT
// Who holds what: one column a rank, one row a part of the parameter.
#include <algorithm>

#include <fmt/format.h>

#include "sim/report.hpp"
#include "sim/text.hpp"

namespace tpsim::cli {
namespace {

struct Glyphs {
  const char *h, *v, *top[3], *middle[3], *bottom[3], *wrong;
};
constexpr Glyphs unicode{"─", "│", {"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}, "✗"};
constexpr Glyphs ascii{"-", "|", {"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}, "x"};

std::string center(const std::string& text, std::size_t width) {
  const std::size_t left = (width - std::min(width, width_of(text))) / 2;
  return pad(std::string(left, ' ') + text, width);
}

// The lines of one cell: names of what is there, then its range when it is one.
std::vector<std::string> cell(const Shard& shard, const std::string& part, const Glyphs& g) {
  std::string names;
  std::vector<const ShardPiece*> pieces;
  bool wrong = false;
  for (const ShardPiece& p : shard.pieces) {
    if (p.part != part) continue;
    pieces.push_back(&p);
    wrong = wrong || !p.as_declared;
    if (!p.label.empty() && p.label != p.part) names += (names.empty() ? "" : ", ") + p.label;
  }
  if (pieces.empty()) return {"nothing"};
  std::vector<std::string> lines;
  // Inside row "q" a cell need not repeat the q of "q heads 0-7".
  if (names.starts_with(part + " ") && pieces.size() == 1 && !part.empty())
    names = names.substr(part.size() + 1);
  if (pieces.size() > 2)
    names = fmt::format("{}, ... ({} pieces)", pieces[0]->label, pieces.size());
  if (!names.empty()) lines.push_back(names);
  if (pieces.size() == 1 && !pieces[0]->source.empty()) {
    const ShardPiece& p = *pieces[0];
    lines.push_back(p.source_stride == 1
                        ? fmt::format("[{}, {})", p.source_begin, p.source_end)
                        : fmt::format("{}:{}:{}", p.source_begin, p.source_end, p.source_stride));
  }
  if (lines.empty()) lines.push_back("");
  if (wrong) lines[0] += std::string(" ") + g.wrong;
  return lines;
}

}  // namespace

std::string shard_table(const TensorReport& tensor, bool utf8, bool verbose) {
  const Glyphs& g = utf8 ? unicode : ascii;
  std::vector<std::string> parts;
  for (const Shard& s : tensor.shards)
    for (const ShardPiece& p : s.pieces)
      if (std::find(parts.begin(), parts.end(), p.part) == parts.end()) parts.push_back(p.part);
  // Up to eight ranks are shown; of more, the first two and the last, and how many lie between.
  std::vector<const Shard*> shown;
  std::size_t left_out = 0;
  for (const Shard& s : tensor.shards) shown.push_back(&s);
  if (shown.size() > 8 && !verbose) {
    left_out = shown.size() - 3;
    shown = {shown[0], shown[1], shown.back()};
  }

  std::size_t label_width = 0;
  for (const std::string& p : parts) label_width = std::max(label_width, width_of(p));
  std::vector<std::vector<std::vector<std::string>>> cells;  // [part][shown rank][line]
  std::size_t width = 8;
  for (const std::string& p : parts) {
    cells.emplace_back();
    for (const Shard* s : shown) {
      cells.back().push_back(cell(*s, p, g));
      for (const std::string& line : cells.back().back())
        width = std::max(width, width_of(line) + 2);
    }
  }
  const std::string gap = left_out == 0 ? "" : fmt::format(" {} more ", left_out);
  // Blocks of columns that fit into 80 terminal columns; wide tables go on below.
  const std::size_t indent = std::max<std::size_t>(label_width + 1, 6);
  const std::size_t room =
      verbose ? std::max<std::size_t>(1, (79 - indent) / (width + 1))
              : std::max<std::size_t>(
                    1, (79 - indent - (gap.empty() ? 0 : gap.size() + 1)) / (width + 1));
  std::string out;
  for (std::size_t first = 0; first < shown.size(); first += room) {
    const std::size_t last = std::min(shown.size(), first + room);
    const auto gap_before = [&](std::size_t i) { return left_out > 0 && i == 2; };
    const auto rule = [&](const char* const ends[3]) {
      out += std::string(indent, ' ') + ends[0];
      for (std::size_t i = first; i < last; ++i) {
        if (gap_before(i)) {
          for (std::size_t k = 0; k < gap.size(); ++k) out += g.h;
          out += ends[1];
        }
        for (std::size_t k = 0; k < width; ++k) out += g.h;
        out += i + 1 < last ? ends[1] : ends[2];
      }
      out += "\n";
    };
    const auto line = [&](const std::string& label, const std::string& between,
                          const auto& text_of) {
      out += pad(std::string(indent - 1 - std::min(indent - 1, width_of(label)), ' ') + label,
                 indent - 1) +
             " " + g.v;
      for (std::size_t i = first; i < last; ++i) {
        if (gap_before(i)) out += pad(between, gap.size()) + g.v;
        out += pad(text_of(i), width) + g.v;
      }
      out += "\n";
    };
    rule(g.top);
    line("", gap,
         [&](std::size_t i) { return center(fmt::format("rank {}", shown[i]->rank), width); });
    rule(g.middle);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      std::size_t lines = 1;
      for (std::size_t i = first; i < last; ++i) lines = std::max(lines, cells[p][i].size());
      for (std::size_t k = 0; k < lines; ++k)
        line(k == 0 ? parts[p] : "", gap.empty() ? "" : center("...", gap.size()),
             [&](std::size_t i) {
               return k < cells[p][i].size() ? " " + cells[p][i][k] : std::string();
             });
    }
    rule(g.bottom);
  }
  return out;
}

}  // namespace tpsim::cli
