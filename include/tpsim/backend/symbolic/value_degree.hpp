// SPDX-License-Identifier: MIT
// Degrees of all values of a world, and what the exact reading's error bound takes from them.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include <tpsim/backend/symbolic/degree.hpp>
#include <tpsim/backend/symbolic/value_table.hpp>

namespace tpsim::detail {

/// Degrees of one element as the field computes it. A sum of terms over one denominator keeps it:
/// the columns of a product x W^T share the denominator of x's columns together.
class ValueDegrees {
 public:
  /// @param keys  how many keys a token of an attention sees, at most
  ValueDegrees(const ValueTable& values, const std::map<ValueId, Index>& keys)
      : values_(&values), keys_(&keys) {
    degrees_.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)  // operands come before what is made of them
      degrees_.push_back(of(static_cast<ValueId>(i)));
  }

  /// Of these outputs, in both runs, for `tokens` tokens.
  [[nodiscard]] SoundnessFigures figures(std::span<const ValueId> outputs, Index tokens) const {
    SoundnessFigures f;
    Degree argument, output;
    std::vector<bool> seen(values_->size(), false);
    std::vector<ValueId> todo(outputs.begin(), outputs.end());
    for (const ValueId id : outputs) output = larger(output, at(id).degree);
    while (!todo.empty()) {
      const ValueId id = todo.back();
      todo.pop_back();
      if (seen[static_cast<std::size_t>(id)]) continue;
      seen[static_cast<std::size_t>(id)] = true;
      const ValueNode& n = values_->node(id);
      f.oracle_calls += 2 * calls(id, n, tokens);
      argument = larger(argument, oracle_argument(n));
      for_each_operand(n, [&](ValueId operand) { todo.push_back(operand); });
    }
    f.argument_degree = Degree::add(argument.num, argument.den);
    f.output_degree = Degree::add(output.num, output.den);
    return f;
  }

 private:
  struct Entry {
    Degree degree;
    Index denominators = 1;  ///< different ones among the columns of a token, at most
  };

  [[nodiscard]] const Entry& at(ValueId id) const { return degrees_[static_cast<std::size_t>(id)]; }
  static Degree larger(Degree a, Degree b) {
    return {std::max(a.num, b.num), std::max(a.den, b.den)};
  }
  // The sum of `terms` elements with so many different denominators.
  static Degree summed(Degree x, Index terms, Index denominators) {
    const Index different = std::min(terms, denominators);
    return {Degree::add(x.num, Degree::times(different - 1, x.den)),
            Degree::times(different, x.den)};
  }
  // Columns that each have one of x's and one of y's.
  static Index pairs(const Entry& x, const Entry& y, Index width) {
    const Index dx = x.degree.den > 0 ? x.denominators : 1;
    const Index dy = y.degree.den > 0 ? y.denominators : 1;
    return std::min(width, Degree::times(dx, dy));
  }
  [[nodiscard]] Index keys(ValueId id) const {
    const auto it = keys_->find(id);
    return it == keys_->end() ? 1 : std::max<Index>(1, it->second);
  }
  static Index heads(const ValueTable& values, const ValueNode& n) {
    return n.n > 0 ? values.node(n.a).width / n.n : 0;
  }

  [[nodiscard]] Entry of(ValueId id) const {
    const ValueNode& n = values_->node(id);
    const Entry x = operands(n.op) > 0 ? at(n.a) : Entry{};
    const Entry y = operands(n.op) > 1 ? at(n.b) : Entry{};
    const Degree a = x.degree, b = y.degree;
    switch (n.op) {
      case ValueOp::linear: {
        const Degree sum = summed(a, n.tensor->shape.cols(), x.denominators);
        return {{Degree::add(sum.num, 1), sum.den}, 1};
      }
      case ValueOp::silu:
      case ValueOp::gelu_tanh:
        return {activated(a), n.width};
      case ValueOp::mul:
        return {a * b, pairs(x, y, n.width)};
      case ValueOp::shifted_sum:
        return {a + b, pairs(x, y, n.width)};
      case ValueOp::gelu:
      case ValueOp::over_sqrt:
      case ValueOp::scaled:
      case ValueOp::rms_norm:
        return {{Degree::add(a.num, 1), a.den}, x.denominators};
      case ValueOp::column_sum:
        return {summed(a, n.n, x.denominators), x.denominators == 1 ? 1 : n.width};
      case ValueOp::square_sum:
        return {summed(a * a, n.n, x.denominators), x.denominators == 1 ? 1 : n.width};
      case ValueOp::centered:
        return {a + b, pairs(x, y, n.width)};
      case ValueOp::rope: {
        const Degree sum = summed(a, 2, x.denominators);
        return {{Degree::add(sum.num, 1), sum.den}, x.denominators == 1 ? 1 : n.width};
      }
      case ValueOp::attention: {
        // Values of several tokens have denominators of their own.
        const Degree weighted = at(n.c).degree * Degree{1, 0},
                     sum = summed(weighted, keys(id), keys(id));
        const bool shared = at(n.c).denominators == 1 || weighted.den == 0;
        return {{sum.num, Degree::add(sum.den, 1)}, shared ? heads(*values_, n) : n.width};
      }
      case ValueOp::maximum:
        return {a, 1};
      case ValueOp::sum: {
        Entry sum{{0, 0}, 1};
        for (const SumTerm& t : n.sum)
          sum = {sum.degree + at(t.value).degree, pairs(sum, at(t.value), n.width)};
        return sum;
      }
      default:
        return {{1, 0}, 1};
    }
  }
  // Each distinct element once; a constant counts once.
  [[nodiscard]] Index calls(ValueId id, const ValueNode& n, Index tokens) const {
    switch (n.op) {
      case ValueOp::silu:
      case ValueOp::gelu:
        return tokens * n.width;
      case ValueOp::gelu_tanh:
        return tokens * n.width + 1;
      case ValueOp::over_sqrt:
        return 1;
      case ValueOp::rms_norm:
        return tokens * values_->node(n.b).width + 1;
      case ValueOp::argmax:  // comparisons
        return tokens * values_->node(n.a).width;
      case ValueOp::attention:  // scores; sinks and slopes; the scale
        return heads(*values_, n) * (tokens * keys(id) + 2) + 1;
      default:
        return 0;
    }
  }
  [[nodiscard]] Degree oracle_argument(const ValueNode& n) const {
    switch (n.op) {
      case ValueOp::silu:
      case ValueOp::gelu:
      case ValueOp::argmax:
        return at(n.a).degree;
      case ValueOp::gelu_tanh: {  // x + a x^3, times a constant
        const Degree x = at(n.a).degree;
        const Index cubed = Degree::times(3, x.num), linear = Degree::add(x.num, 2 * x.den);
        return {Degree::add(std::max(cubed, linear), 1), Degree::times(3, x.den)};
      }
      case ValueOp::rms_norm:
        return at(n.b).degree + Degree{1, 0};
      case ValueOp::attention: {  // q . k times the scale; a slope adds no more
        const Entry &q = at(n.a), &k = at(n.b);
        const Degree dot = summed(q.degree * k.degree, n.n, pairs(q, k, n.n));
        return {Degree::add(std::max(dot.num, dot.den), 1), dot.den};
      }
      default:
        return {0, 0};
    }
  }

  const ValueTable* values_;
  const std::map<ValueId, Index>* keys_;
  std::vector<Entry> degrees_;
};

}  // namespace tpsim::detail
