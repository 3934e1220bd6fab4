// SPDX-License-Identifier: MIT
// What an activation stands for: expressions over full tensors, each kept once.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/coverage.hpp>
#include <tpsim/backend/symbolic/value_name.hpp>

namespace tpsim {

/// All values of one world. The same expression always gets the same id, whichever rank builds it.
class ValueTable {
 public:
  [[nodiscard]] ValueId input(std::string_view name, Index width) {
    return intern({.op = ValueOp::input, .label = std::string(name), .width = width});
  }
  /// a tensor^T, width tensor.rows, contracted over tensor.cols. With a `shift`, column c of a
  /// meets column c + shift of the tensor: a is one of several values side by side, or more than is
  /// read.
  [[nodiscard]] ValueId linear(ValueId a, const Logical& tensor,
                               std::optional<Index> shift = std::nullopt) {
    return intern({.op = ValueOp::linear,
                   .a = a,
                   .tensor = tensor,
                   .label = shift ? std::to_string(*shift) : std::string(),
                   .width = tensor->shape.rows()});
  }
  [[nodiscard]] ValueId bias(const Logical& tensor) {
    return intern({.op = ValueOp::bias, .tensor = tensor, .width = tensor->shape.rows()});
  }
  /// Row id of the table for each token; with a label ("row 3", "ids + 1") other rows.
  [[nodiscard]] ValueId lookup(const Logical& table, std::string label = {}) {
    return intern({.op = ValueOp::lookup,
                   .tensor = table,
                   .label = std::move(label),
                   .width = table->shape.cols()});
  }
  /// silu, gelu, gelu_tanh. @param op  a function of one element
  [[nodiscard]] ValueId activation(ValueOp op, ValueId a) {
    return intern({.op = op, .a = a, .width = node(a).width});
  }
  [[nodiscard]] ValueId silu(ValueId a) { return activation(ValueOp::silu, a); }
  [[nodiscard]] ValueId mul(ValueId a, ValueId b) {
    if (b < a) std::swap(a, b);
    return intern({.op = ValueOp::mul, .a = a, .b = b, .width = narrower(a, b)});
  }
  [[nodiscard]] ValueId over_sqrt(ValueId a, Index n) {
    return intern(
        {.op = ValueOp::over_sqrt, .a = a, .label = std::to_string(n), .width = node(a).width});
  }
  /// Column c of a times column c - shift of the narrower b: a query head and the kv head that it
  /// shares with others. Its columns are those of a.
  [[nodiscard]] ValueId shifted_mul(ValueId a, ValueId b, Index shift) {
    return intern({.op = ValueOp::mul,
                   .a = a,
                   .b = b,
                   .label = std::to_string(shift),
                   .width = node(a).width});
  }
  /// Column c of a plus column c - shift of b. Its columns are those of a.
  [[nodiscard]] ValueId shifted_sum(ValueId a, ValueId b, Index shift) {
    return intern({.op = ValueOp::shifted_sum,
                   .a = a,
                   .b = b,
                   .label = std::to_string(shift),
                   .width = node(a).width});
  }
  /// A product with one tensor whose columns read several values: of each the columns that its
  /// coverage tells. @pre the values are products with this tensor; together they cover it once
  [[nodiscard]] ValueId joint(std::vector<std::pair<ValueId, Coverage>> parts) {
    std::sort(parts.begin(), parts.end(),
              [](const auto& l, const auto& r) { return l.first < r.first; });
    ValueNode n{.op = ValueOp::sum, .width = node(parts[0].first).width};
    for (const auto& [value, columns] : parts) {
      n.sum.push_back({value, 1});
      for (const Coverage::Segment& s : columns.segments())
        n.label += std::to_string(s.begin) + ":" + std::to_string(s.end) + "*" + s.coef.str() + " ";
      n.label += ";";
    }
    return intern(std::move(n));
  }
  /// The value itself when it is one, once. What all terms have in common is taken out, so that a
  /// sum may come before or after a product: a W^T + b W^T is (a + b) W^T, a g + b g is (a + b) g.
  /// @pre the terms are of one width
  [[nodiscard]] ValueId sum(std::vector<SumTerm> terms, Index width) {
    terms = grouped(merged(terms));
    if (terms.size() == 1 && terms[0].coef == Rational(1)) return terms[0].value;
    if (const std::optional<SumTerm> product = factored(terms)) {
      if (product->coef == Rational(1)) return product->value;
      terms = {*product};
    }
    return intern({.op = ValueOp::sum, .sum = std::move(terms), .width = width});
  }
  /// The value as a multiple of another whose first term counts once: what is linear takes the
  /// factor out, so that it may come before or after.
  [[nodiscard]] SumTerm multiple(ValueId id) {
    const ValueNode n = node(id);
    if (n.op != ValueOp::sum || !n.label.empty() || n.sum.empty()) return {id, 1};
    const Rational first = n.sum[0].coef;
    if (first == Rational(1)) return {id, 1};
    std::vector<SumTerm> terms = n.sum;
    for (SumTerm& t : terms) t.coef = t.coef * Rational(first.den(), first.num());
    return {sum(std::move(terms), n.width), first};
  }
  /// A new value that equals no other.
  [[nodiscard]] ValueId unknown(std::string label, Index width) {
    nodes_.push_back(
        {.op = ValueOp::unknown, .label = std::move(label), .width = width, .known = false});
    return static_cast<ValueId>(nodes_.size() - 1);
  }

  /// Valid until the next value is made.
  [[nodiscard]] const ValueNode& node(ValueId id) const {
    return nodes_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  /// "Silu(Lin(x, gate_proj.weight))"; "..." below `depth` levels.
  [[nodiscard]] std::string name(ValueId id, int depth = 6) const {
    return detail::ValueNames(nodes_).name(id, depth);
  }
  /// The value of this node: the one that exists, or a new one.
  ValueId intern(ValueNode n) {
    for_each_operand(n, [&](ValueId operand) { n.known = n.known && node(operand).known; });
    if (2 * (nodes_.size() + 1) > slots_.size()) grow();
    std::size_t at = detail::hash(n) & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1))
      if (detail::same(nodes_[slots_[at] - 1], n)) return static_cast<ValueId>(slots_[at] - 1);
    nodes_.push_back(std::move(n));
    slots_[at] = static_cast<std::uint32_t>(nodes_.size());
    return static_cast<ValueId>(nodes_.size() - 1);
  }

 private:
  [[nodiscard]] Index narrower(ValueId a, ValueId b) const {
    return std::min(node(a).width, node(b).width);
  }
  // Sorted by value, each value once, no sum among them.
  [[nodiscard]] std::vector<SumTerm> merged(const std::vector<SumTerm>& terms) const {
    std::vector<SumTerm> flat, out;
    for (const SumTerm& t : terms)
      if (node(t.value).op == ValueOp::sum && node(t.value).label.empty())
        for (const SumTerm& u : node(t.value).sum) flat.push_back({u.value, u.coef * t.coef});
      else
        flat.push_back(t);
    std::sort(flat.begin(), flat.end(),
              [](const SumTerm& l, const SumTerm& r) { return l.value < r.value; });
    for (const SumTerm& t : flat)
      if (!out.empty() && out.back().value == t.value)
        out.back().coef = out.back().coef + t.coef;
      else
        out.push_back(t);
    std::erase_if(out, [](const SumTerm& t) { return t.coef == Rational(0); });
    return out;
  }
  // What is linear in its one operand comes after the sum: a W^T + b W^T + c is (a + b) W^T + c,
  // likewise columns scaled by one weight, heads turned by one angle.
  [[nodiscard]] std::vector<SumTerm> grouped(std::vector<SumTerm> terms) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      ValueNode joint = node(terms[i].value);
      if (!commutes_with_sums(joint)) continue;
      const Index width = node(joint.a).width;
      std::vector<SumTerm> inner, rest;
      for (const SumTerm& t : terms) {
        ValueNode other = node(t.value);
        const ValueId operand = std::exchange(other.a, joint.a);
        if (detail::same(other, joint) && node(operand).width == width)
          inner.push_back({operand, t.coef});
        else
          rest.push_back(t);
      }
      if (inner.size() < 2) continue;
      const SumTerm total = multiple(sum(std::move(inner), width));
      joint.a = total.value;
      joint.known = true;
      rest.push_back({intern(std::move(joint)), total.coef});
      return grouped(merged(rest));
    }
    return terms;
  }
  static bool commutes_with_sums(const ValueNode& n) {
    return n.op == ValueOp::rope ||
           ((n.op == ValueOp::linear || n.op == ValueOp::scaled) && n.label.empty());
  }
  // The sum as a multiple of one product, when all of several terms share a factor.
  [[nodiscard]] std::optional<SumTerm> factored(const std::vector<SumTerm>& terms) {
    if (terms.size() < 2) return std::nullopt;
    const ValueNode first = node(terms[0].value);
    if (first.op != ValueOp::mul) return std::nullopt;
    for (const ValueId factor : {first.a, first.b}) {
      std::vector<SumTerm> rest;
      for (const SumTerm& t : terms) {
        const ValueNode& n = node(t.value);
        if (n.op != first.op || !n.label.empty()) return std::nullopt;
        if (n.b == factor)
          rest.push_back({n.a, t.coef});
        else if (n.a == factor)
          rest.push_back({n.b, t.coef});
      }
      if (rest.size() < terms.size()) continue;
      const Index inner_width = node(rest[0].value).width;
      const SumTerm inner = multiple(sum(std::move(rest), inner_width));
      return SumTerm{mul(inner.value, factor), inner.coef};
    }
    return std::nullopt;
  }
  // Open addressing with linear probing; a slot holds the id + 1.
  void grow() {
    std::size_t size = 64;
    while (size < 4 * (nodes_.size() + 1)) size *= 2;
    slots_.assign(size, 0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].op == ValueOp::unknown) continue;
      std::size_t at = detail::hash(nodes_[i]) & (size - 1);
      while (slots_[at] != 0) at = (at + 1) & (size - 1);
      slots_[at] = static_cast<std::uint32_t>(i + 1);
    }
  }

  std::vector<ValueNode> nodes_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace tpsim
