// SPDX-License-Identifier: MIT
// Where two values begin to differ: deep inside a layer, not in all that follows from it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/value_table.hpp>

namespace tpsim {

/// The innermost parts of two values that differ, and how often each counts; nothing where one has
/// no part that answers to the other's.
struct ValueDifference {
  std::optional<SumTerm> have, wanted;
};

namespace detail {

class Differ {
 public:
  explicit Differ(const ValueTable& values) : values_(values) {}

  /// Goes into the first operand that differs, as long as nothing else does; of a sum into the
  /// term that was computed first.
  [[nodiscard]] ValueDifference operator()(ValueId have, ValueId wanted) const {
    while (true) {
      const ValueNode &a = values_.node(have), &b = values_.node(wanted);
      if (is_sum(a) || is_sum(b)) {
        const ValueDifference first = first_term(terms(have), terms(wanted));
        if (!first.have || !first.wanted || first.have->coef != first.wanted->coef) return first;
        if (first.have->value == have && first.wanted->value == wanted) break;
        have = first.have->value, wanted = first.wanted->value;
        continue;
      }
      ValueNode same_operands = a;
      same_operands.a = b.a, same_operands.b = b.b, same_operands.c = b.c;
      if (!same(same_operands, b)) break;  // another operation, tensor or number
      const std::pair<ValueId, ValueId> operands[] = {{a.a, b.a}, {a.b, b.b}, {a.c, b.c}};
      const auto differs = [](const auto& pair) { return pair.first != pair.second; };
      const auto* pair = std::find_if(std::begin(operands), std::end(operands), differs);
      have = pair->first, wanted = pair->second;
    }
    return {SumTerm{have, 1}, SumTerm{wanted, 1}};
  }

 private:
  static bool is_sum(const ValueNode& n) { return n.op == ValueOp::sum && n.label.empty(); }
  [[nodiscard]] std::vector<SumTerm> terms(ValueId id) const {
    const ValueNode& n = values_.node(id);
    return is_sum(n) ? n.sum : std::vector<SumTerm>{{id, 1}};
  }
  /// The reference computes its values in order, so that the least id comes first.
  [[nodiscard]] ValueDifference first_term(std::vector<SumTerm> left,
                                           std::vector<SumTerm> right) const {
    std::erase_if(left, [&](const SumTerm& t) {
      const auto other = std::find(right.begin(), right.end(), t);
      if (other == right.end()) return false;
      right.erase(other);
      return true;
    });
    const auto earlier = [](const SumTerm& a, const SumTerm& b) { return a.value < b.value; };
    if (right.empty()) return {*std::min_element(left.begin(), left.end(), earlier), std::nullopt};
    const SumTerm wanted = *std::min_element(right.begin(), right.end(), earlier);
    const ValueNode& w = values_.node(wanted.value);
    for (const SumTerm& t : left) {
      const ValueNode& n = values_.node(t.value);
      if (n.op == w.op && same_tensor(n.tensor, w.tensor)) return {t, wanted};
    }
    if (left.size() == 1 && right.size() == 1) return {left[0], wanted};
    return {std::nullopt, wanted};
  }

  const ValueTable& values_;
};

}  // namespace detail

/// @pre have != wanted
[[nodiscard]] inline ValueDifference difference(const ValueTable& values, ValueId have,
                                                ValueId wanted) {
  return detail::Differ(values)(have, wanted);
}
/// "differs from full() in Attn(..., 1/sqrt(24)) where Attn(..., 1/sqrt(6)) belongs".
[[nodiscard]] inline std::string difference_text(const ValueTable& values, ValueId have,
                                                 ValueId wanted) {
  const ValueDifference d = difference(values, have, wanted);
  const auto text = [&](const SumTerm& t, int depth) {
    return (t.coef == Rational(1) ? "" : t.coef.str() + " ") + values.name(t.value, depth);
  };
  if (!d.have) return "lacks " + text(*d.wanted, 2);
  if (!d.wanted) return "has " + text(*d.have, 2) + " too much";
  int depth = 1;  // as deep as it takes to see a difference
  while (depth < 6 && text(*d.have, depth) == text(*d.wanted, depth)) ++depth;
  return "differs from full() in " + text(*d.have, depth) + " where " + text(*d.wanted, depth) +
         " belongs";
}

}  // namespace tpsim
