// SPDX-License-Identifier: MIT
// Cuts as text.
#pragma once

#include <string>
#include <utility>

#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/detail/text_cursor.hpp>

namespace tpsim {

inline Cut Cut::parse(std::string_view text) {
  detail::TextCursor cursor(text, "cut");
  const auto expect = [&](char c) {
    if (!cursor.take(c)) cursor.fail(cursor.column(), std::string("expected '") + c + "'");
  };
  Cut cut;
  do {
    if (cursor.at_number()) {
      cut.axes.push_back(std::to_string(cursor.number()));
      continue;
    }
    const std::size_t column = cursor.column();
    cut.axes.push_back(cursor.word());
    if (cut.axes.back().empty())
      cursor.fail(column, cut.axes.size() == 1 ? "expected an axis name or 'whole'"
                                               : "expected an axis name");
  } while (cursor.take('*'));
  if (cut.axes.size() == 1 && cut.axes.front() == "whole" && cursor.at_end()) return {};

  const std::size_t column = cursor.column();
  const std::string rule = cursor.word();
  if (rule == "even") {
    cut.rule = CutRule::even;
  } else if (rule == "replicated") {
    cut.rule = CutRule::replicated;
  } else if (rule == "chunk") {
    cut.rule = CutRule::chunk;
  } else if (rule == "tensor_split") {
    cut.rule = CutRule::tensor_split;
  } else if (rule == "block" || rule == "padded") {
    cut.rule = rule == "block" ? CutRule::block : CutRule::padded;
    expect('(');
    cut.size = cursor.number();
    if (cut.rule == CutRule::padded && cursor.take('*')) {
      const std::size_t at = cursor.column();
      if (cursor.word() != "tp") cursor.fail(at, "expected 'tp'");
      cut.times_tp = true;
    }
    expect(')');
    if (cut.rule == CutRule::padded && !cursor.at_end()) {
      const std::size_t at = cursor.column();
      const std::string fill = cursor.word();
      if (fill != "zero" && fill != "last") cursor.fail(at, "expected 'zero', 'last' or the end");
      cut.fill = fill == "last" ? Fill::last : Fill::zero;
    }
  } else {
    cursor.fail(column, std::string("expected ") + (rule.empty() ? "'*' or " : "") +
                            "a rule: even, replicated, padded(m), block(b), chunk or tensor_split");
  }
  if (!cursor.at_end()) cursor.fail(cursor.column(), "expected the end");
  return cut;
}

inline std::string Cut::str() const {
  if (rule == CutRule::whole) return "whole";
  std::string out;
  for (const std::string& axis : axes) out += (out.empty() ? "" : "*") + axis;
  switch (rule) {
    case CutRule::whole:
      break;
    case CutRule::even:
      out += " even";
      break;
    case CutRule::replicated:
      out += " replicated";
      break;
    case CutRule::chunk:
      out += " chunk";
      break;
    case CutRule::tensor_split:
      out += " tensor_split";
      break;
    case CutRule::block:
      out += " block(" + std::to_string(size) + ")";
      break;
    case CutRule::padded:
      out += " padded(" + std::to_string(size) + (times_tp ? "*tp) " : ") ") +
             (fill == Fill::last ? "last" : "zero");
      break;
  }
  return out;
}

}  // namespace tpsim
