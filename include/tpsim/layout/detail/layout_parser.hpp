// SPDX-License-Identifier: MIT
// Recursive descent parser of layout expressions.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layout/layout_expr.hpp>

namespace tpsim::detail {

class LayoutParser {
 public:
  explicit LayoutParser(std::string_view text) : cursor_(text, "layout") {}

  std::vector<LayoutExpr::Part> parse() {
    std::vector<LayoutExpr::Part> parts = sum(0);
    if (!cursor_.at_end()) cursor_.fail(cursor_.column(), "expected '*', '+' or the end");
    return parts;
  }

 private:
  using Part = LayoutExpr::Part;
  using Factor = LayoutExpr::Factor;
  static constexpr int max_depth = 16;

  std::vector<Part> sum(int depth) {
    std::vector<Part> parts;
    do parts.push_back(part(depth));
    while (cursor_.take('+'));
    if (parts.size() > 1) {
      for (const Part& p : parts)
        if (p.label.empty() && !p.bare() && !holds_group(p))
          cursor_.fail(p.column, "expected a label: every part of a sum needs one");
    }
    return parts;
  }

  Part part(int depth) {
    Part out;
    out.column = cursor_.column();
    do out.factors.push_back(factor(out, depth));
    while (cursor_.take('*'));
    return out;
  }

  // A factor of `part`. Its first word may turn out to be the label.
  Factor factor(Part& part, int depth) {
    const std::size_t column = cursor_.column();
    if (cursor_.at_number()) return {{}, cursor_.number(), {}, column};
    if (cursor_.peek() == '(') return group(part, depth, column);
    std::string name = cursor_.word();
    if (name.empty())
      cursor_.fail(column, part.label.empty() ? "expected an axis name, a number or '('"
                                              : "expected an axis name or a number");
    if (cursor_.peek() != ':') return {std::move(name), 0, {}, column};
    if (!part.label.empty())
      cursor_.fail(column, "'" + name + "' is a label inside the label '" + part.label + "'");
    if (!part.factors.empty())
      cursor_.fail(column, "the label '" + name + "' must stand first in its part");
    if (!labels_.insert(name).second)
      cursor_.fail(column, "the label '" + name + "' is used twice");
    cursor_.take(':');
    part.label = std::move(name);
    return factor(part, depth);  // once: a second label has just been refused
  }

  Factor group(const Part& part, int depth, std::size_t column) {
    if (!part.label.empty())
      cursor_.fail(column, "expected an axis name or a number: the label '" + part.label +
                               "' cannot hold parentheses");
    if (holds_group(part))
      cursor_.fail(column, "expected an axis name or a number: a product has parentheses once");
    if (depth == max_depth)
      cursor_.fail(column, "parentheses are nested deeper than " + std::to_string(max_depth));
    cursor_.take('(');
    Factor out{{}, 0, sum(depth + 1), column};
    if (!cursor_.take(')')) cursor_.fail(cursor_.column(), "expected '*', '+' or ')'");
    return out;
  }

  static bool holds_group(const Part& part) {
    for (const Factor& f : part.factors)
      if (!f.group.empty()) return true;
    return false;
  }

  TextCursor cursor_;
  std::set<std::string> labels_;
};

}  // namespace tpsim::detail

namespace tpsim {

inline LayoutExpr LayoutExpr::parse(std::string_view text) {
  return {std::string(text), detail::LayoutParser(text).parse()};
}

}  // namespace tpsim
