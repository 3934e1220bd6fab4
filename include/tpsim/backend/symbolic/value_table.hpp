// SPDX-License-Identifier: MIT
// What an activation stands for: expressions over full tensors, each kept once.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/degree.hpp>
#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/rational.hpp>

namespace tpsim {

/// A logical value [tokens, width]. Two are equal exactly when their ids are.
enum class ValueId : std::uint32_t {};

enum class ValueOp : std::uint8_t {
  input,    ///< a stage's input, by name
  linear,   ///< a tensor^T
  bias,     ///< a 1-D tensor on every token
  silu,     ///< of a
  mul,      ///< a b, element by element
  sum,      ///< of multiples of values
  unknown,  ///< nothing known, equal to itself alone
};

/// `coef` times a value, in a sum.
struct SumTerm {
  ValueId value{};
  Rational coef = 1;
  friend bool operator==(const SumTerm&, const SumTerm&) = default;
};

struct ValueNode {
  ValueOp op = ValueOp::unknown;
  ValueId a{}, b{};          ///< operands, a <= b for mul
  Logical tensor;            ///< of linear and bias
  std::vector<SumTerm> sum;  ///< sorted by value
  std::string label;         ///< of input and unknown
  Index width = 0;           ///< columns
  Degree degree;             ///< of one element
  bool known = true;         ///< false when an unknown value is inside
};

/// All values of one world. The same expression always gets the same id, whichever rank builds it.
class ValueTable {
 public:
  [[nodiscard]] ValueId input(std::string_view name, Index width) {
    return intern({ValueOp::input, {}, {}, nullptr, {}, std::string(name), width, {1, 0}});
  }
  /// a tensor^T, width tensor.rows, contracted over tensor.cols
  [[nodiscard]] ValueId linear(ValueId a, const Logical& tensor) {
    const ValueNode& x = node(a);
    return intern({ValueOp::linear,
                   a,
                   {},
                   tensor,
                   {},
                   {},
                   tensor->shape.rows(),
                   contracted(x.degree, tensor->shape.cols()),
                   x.known});
  }
  [[nodiscard]] ValueId bias(const Logical& tensor) {
    return intern({ValueOp::bias, {}, {}, tensor, {}, {}, tensor->shape.rows(), {1, 0}});
  }
  [[nodiscard]] ValueId silu(ValueId a) {
    const ValueNode& x = node(a);
    return intern({ValueOp::silu, a, {}, nullptr, {}, {}, x.width, activated(x.degree), x.known});
  }
  [[nodiscard]] ValueId mul(ValueId a, ValueId b) {
    if (b < a) std::swap(a, b);
    const ValueNode &x = node(a), &y = node(b);
    return intern({ValueOp::mul,
                   a,
                   b,
                   nullptr,
                   {},
                   {},
                   std::min(x.width, y.width),
                   x.degree * y.degree,
                   x.known && y.known});
  }
  /// The value itself when it is one, once. @pre the terms are of one width; none is a sum
  [[nodiscard]] ValueId sum(std::vector<SumTerm> terms, Index width) {
    std::sort(terms.begin(), terms.end(),
              [](const SumTerm& l, const SumTerm& r) { return l.value < r.value; });
    if (terms.size() == 1 && terms[0].coef == Rational(1)) return terms[0].value;
    ValueNode n{ValueOp::sum, {}, {}, nullptr, {}, {}, width, {0, 0}};
    for (const SumTerm& t : terms) {
      n.degree = n.degree + node(t.value).degree;
      n.known = n.known && node(t.value).known;
    }
    n.sum = std::move(terms);
    return intern(std::move(n));
  }
  /// A new value that equals no other.
  [[nodiscard]] ValueId unknown(std::string label, Index width) {
    nodes_.push_back(
        {ValueOp::unknown, {}, {}, nullptr, {}, std::move(label), width, {1, 0}, false});
    return static_cast<ValueId>(nodes_.size() - 1);
  }

  /// Valid until the next value is made.
  [[nodiscard]] const ValueNode& node(ValueId id) const {
    return nodes_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  /// "Silu(Lin(x, gate_proj.weight))"; "..." below `depth` levels.
  [[nodiscard]] std::string name(ValueId id, int depth = 6) const {
    const ValueNode& n = node(id);
    if (n.op == ValueOp::bias) return n.tensor->name;
    if (n.op == ValueOp::input || n.op == ValueOp::unknown) return n.label;
    if (depth == 0) return "...";
    switch (n.op) {
      case ValueOp::linear:
        return "Lin(" + name(n.a, depth - 1) + ", " + n.tensor->name + ")";
      case ValueOp::silu:
        return "Silu(" + name(n.a, depth - 1) + ")";
      case ValueOp::mul:
        return "Mul(" + name(n.a, depth - 1) + ", " + name(n.b, depth - 1) + ")";
      default:
        return sum_name(n, depth);
    }
  }

 private:
  [[nodiscard]] std::string sum_name(const ValueNode& n, int depth) const {
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

  static std::uint64_t hash(const ValueNode& n) {
    const auto number = [](auto v) { return static_cast<std::uint64_t>(v); };
    std::uint64_t h = mix(number(n.op) + (number(n.width) << 8U));
    h = mix(h ^ (number(n.a) + (number(n.b) << 32U)));
    if (n.tensor) h = mix(h ^ n.tensor->key);
    for (const SumTerm& t : n.sum)
      h = mix(mix(h ^ number(t.value)) ^ mix(number(t.coef.num())) ^ number(t.coef.den()));
    return n.label.empty() ? h : mix(h ^ hash_name(n.label));
  }
  static bool same(const ValueNode& l, const ValueNode& r) {
    return l.op == r.op && l.a == r.a && l.b == r.b && l.width == r.width && l.sum == r.sum &&
           l.label == r.label && same_tensor(l.tensor, r.tensor);
  }

  // Open addressing with linear probing; a slot holds the id + 1.
  ValueId intern(ValueNode n) {
    if (2 * (nodes_.size() + 1) > slots_.size()) grow();
    std::size_t at = hash(n) & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1))
      if (same(nodes_[slots_[at] - 1], n)) return static_cast<ValueId>(slots_[at] - 1);
    nodes_.push_back(std::move(n));
    slots_[at] = static_cast<std::uint32_t>(nodes_.size());
    return static_cast<ValueId>(nodes_.size() - 1);
  }
  void grow() {
    std::size_t size = 64;
    while (size < 4 * (nodes_.size() + 1)) size *= 2;
    slots_.assign(size, 0);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].op == ValueOp::unknown) continue;
      std::size_t at = hash(nodes_[i]) & (size - 1);
      while (slots_[at] != 0) at = (at + 1) & (size - 1);
      slots_[at] = static_cast<std::uint32_t>(i + 1);
    }
  }

  std::vector<ValueNode> nodes_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace tpsim
