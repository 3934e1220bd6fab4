// SPDX-License-Identifier: MIT
// What an activation stands for: one operation on other values and full tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/core/random.hpp>
#include <tpsim/core/rational.hpp>

namespace tpsim {

/// A logical value [tokens, width]. Two are equal exactly when their ids are.
enum class ValueId : std::uint32_t {};

enum class ValueOp : std::uint8_t {
  input,        ///< a stage's input, by name
  linear,       ///< a tensor^T
  lookup,       ///< rows of a tensor by token id; `label`: which rows, when not those of the ids
  bias,         ///< a 1-D tensor on every token
  silu,         ///< of a
  gelu,         ///< of a, by the error function
  gelu_tanh,    ///< of a, by tanh
  mul,          ///< a b, element by element; `label`: by how much the columns of b are shifted
  over_sqrt,    ///< a / sqrt(n), n in the label
  sum,          ///< of multiples of values; `label`: which columns of each a product has read
  shifted_sum,  ///< a + b, the columns of b shifted by the label
  column_sum,   ///< column g: the sum of columns [g n, (g + 1) n) of a
  square_sum,   ///< the same of their squares
  centered,     ///< a - b / n, b the column_sum of each column's group
  rms_norm,     ///< a / sqrt(b / n + eps), eps in the label
  scaled,       ///< column c of a times entry c of a 1-D tensor, or entry c mod its rows
  rope,         ///< heads of n columns turned; spec, unexpected positions in the label
  attention,    ///< of queries a over keys b and values c, heads of n columns; sinks: the tensor
  maximum,      ///< one column: the greatest of a's, or of those in the label
  argmax,       ///< one column: which one that is
  unknown,      ///< nothing known, equal to itself alone
};

/// `coef` times a value, in a sum.
struct SumTerm {
  ValueId value{};
  Rational coef = 1;
  friend bool operator==(const SumTerm&, const SumTerm&) = default;
};

struct ValueNode {
  ValueOp op = ValueOp::unknown;
  ValueId a{}, b{}, c{};          ///< operands, a <= b for mul without a label
  Logical tensor = {};            ///< of linear, lookup, bias, scaled and attention
  std::vector<SumTerm> sum = {};  ///< sorted by value
  std::string label = {};         ///< of input and unknown; see ValueOp
  Index n = 0;                    ///< see ValueOp
  Index width = 0;                ///< columns
  bool known = true;              ///< false when an unknown value is inside
};

/// How many of a, b, c the operation has; a sum's operands are its terms.
[[nodiscard]] constexpr int operands(ValueOp op) {
  switch (op) {
    case ValueOp::linear:
    case ValueOp::silu:
    case ValueOp::gelu:
    case ValueOp::gelu_tanh:
    case ValueOp::over_sqrt:
    case ValueOp::column_sum:
    case ValueOp::square_sum:
    case ValueOp::scaled:
    case ValueOp::rope:
    case ValueOp::maximum:
    case ValueOp::argmax:
      return 1;
    case ValueOp::mul:
    case ValueOp::shifted_sum:
    case ValueOp::centered:
    case ValueOp::rms_norm:
      return 2;
    case ValueOp::attention:
      return 3;
    default:
      return 0;
  }
}
/// Calls visit(id) for every value that the node is made of.
template <class Visit>
void for_each_operand(const ValueNode& n, Visit visit) {
  const int count = operands(n.op);
  if (count > 0) visit(n.a);
  if (count > 1) visit(n.b);
  if (count > 2) visit(n.c);
  for (const SumTerm& t : n.sum) visit(t.value);
}

namespace detail {

[[nodiscard]] inline std::uint64_t hash(const ValueNode& n) {
  const auto number = [](auto v) { return static_cast<std::uint64_t>(v); };
  std::uint64_t h = mix(number(n.op) + (number(n.width) << 8U));
  h = mix(h ^ (number(n.a) + (number(n.b) << 32U)));
  h = mix(h ^ (number(n.c) + (number(n.n) << 32U)));
  if (n.tensor) h = mix(h ^ n.tensor->key);
  for (const SumTerm& t : n.sum)
    h = mix(mix(h ^ number(t.value)) ^ mix(number(t.coef.num())) ^ number(t.coef.den()));
  return n.label.empty() ? h : mix(h ^ hash_name(n.label));
}
[[nodiscard]] inline bool same(const ValueNode& l, const ValueNode& r) {
  return l.op == r.op && l.a == r.a && l.b == r.b && l.c == r.c && l.n == r.n &&
         l.width == r.width && l.sum == r.sum && l.label == r.label &&
         same_tensor(l.tensor, r.tensor);
}

}  // namespace detail
}  // namespace tpsim
