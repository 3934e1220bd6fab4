// SPDX-License-Identifier: MIT
// Values in words.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/value_node.hpp>

namespace tpsim::detail {

/// "Silu(Lin(x, gate_proj.weight))"; "..." below some depth.
class ValueNames {
 public:
  explicit ValueNames(std::span<const ValueNode> nodes) : nodes_(nodes) {}

  [[nodiscard]] std::string name(ValueId id, int depth) const {
    const ValueNode& n = node(id);
    if (n.op == ValueOp::bias) return n.tensor->name;
    if (n.op == ValueOp::input || n.op == ValueOp::unknown) return n.label;
    if (depth == 0) return "...";
    const auto of = [&](ValueId operand) { return name(operand, depth - 1); };
    const auto noted = [&](const std::string& before) {
      return n.label.empty() ? std::string() : before + n.label;
    };
    switch (n.op) {
      case ValueOp::linear:
        return "Lin(" + of(n.a) + ", " + n.tensor->name + noted(" shifted by ") + ")";
      case ValueOp::lookup:
        return "Lookup(" + (n.label.empty() ? "ids" : n.label) + ", " + n.tensor->name + ")";
      case ValueOp::silu:
        return "Silu(" + of(n.a) + ")";
      case ValueOp::gelu:
        return "Gelu(" + of(n.a) + ")";
      case ValueOp::gelu_tanh:
        return "GeluTanh(" + of(n.a) + ")";
      case ValueOp::over_sqrt:
        return of(n.a) + " / sqrt(" + n.label + ")";
      case ValueOp::mul:
        return "Mul(" + of(n.a) + ", " + of(n.b) + noted(" shifted by ") + ")";
      case ValueOp::shifted_sum:
        return "(" + of(n.a) + " + " + of(n.b) + " shifted by " + n.label + ")";
      case ValueOp::column_sum:
        return "Sum(" + of(n.a) + ", by " + std::to_string(n.n) + ")";
      case ValueOp::square_sum:
        return "SquareSum(" + of(n.a) + ", by " + std::to_string(n.n) + ")";
      case ValueOp::centered:
        return "Centered(" + of(n.a) + statistics(n, ValueOp::column_sum, depth) + ")";
      case ValueOp::rms_norm:
        return "RmsNorm(" + of(n.a) + statistics(n, ValueOp::square_sum, depth) + ", eps " +
               n.label + ")";
      case ValueOp::scaled:
        return "Scaled(" + of(n.a) + ", " + n.tensor->name + noted(" shifted by ") + ")";
      case ValueOp::rope:
        return "Rope(" + of(n.a) + ", " + n.label + ")";
      case ValueOp::attention:
        return "Attn(" + of(n.a) + ", " + of(n.b) + ", " + of(n.c) +
               (n.tensor ? ", " + n.tensor->name : "") + ", " + n.label + ")";
      case ValueOp::maximum:
        return "Max(" + of(n.a) + noted(" columns ") + ")";
      case ValueOp::argmax:
        return "Argmax(" + of(n.a) + noted(" columns ") + ")";
      default:
        return sum_name(n, depth);
    }
  }

 private:
  [[nodiscard]] const ValueNode& node(ValueId id) const {
    return nodes_[static_cast<std::size_t>(id)];
  }
  // Only what is not the rule: the statistics of the same value, over groups of as many columns
  // as they are divided by.
  [[nodiscard]] std::string statistics(const ValueNode& n, ValueOp expected, int depth) const {
    const ValueNode& s = node(n.b);
    std::string out;
    if (s.op != expected || s.a != n.a)
      out += ", " + name(n.b, depth - 1);
    else if (s.n != n.n)
      out += ", by " + std::to_string(s.n);
    return out + ", n " + std::to_string(n.n);
  }
  [[nodiscard]] std::string sum_name(const ValueNode& n, int depth) const {
    if (!n.label.empty() && node(n.sum[0].value).op == ValueOp::lookup) return lookups_name(n);
    if (!n.label.empty())
      return "Lin(" + std::to_string(n.sum.size()) + " values side by side, " +
             node(n.sum[0].value).tensor->name + ")";
    // By name, not by id: ids depend on which rank came first.
    std::vector<std::pair<std::string, Rational>> terms;
    for (const SumTerm& t : n.sum) terms.emplace_back(name(t.value, depth - 1), t.coef);
    std::sort(terms.begin(), terms.end(),
              [](const auto& l, const auto& r) { return l.first < r.first; });
    std::string out;
    for (const auto& [text, coef] : terms) {
      if (!out.empty()) out += " + ";
      if (coef != Rational(1)) out += coef.str() + " ";
      out += text;
    }
    return out.empty() ? "0" : n.sum.size() == 1 ? out : "(" + out + ")";
  }
  // Some ids read one row, some another: "Lookup(ids or row 51, embed_tokens.weight)".
  [[nodiscard]] std::string lookups_name(const ValueNode& n) const {
    std::vector<std::string> rows;
    for (const SumTerm& t : n.sum)
      rows.push_back(node(t.value).label.empty() ? "ids" : node(t.value).label);
    std::sort(rows.begin(), rows.end());
    std::string out;
    for (const std::string& row : rows) out += (out.empty() ? "" : " or ") + row;
    return "Lookup(" + out + ", " + node(n.sum[0].value).tensor->name + ")";
  }

  std::span<const ValueNode> nodes_;
};

}  // namespace tpsim::detail
