// SPDX-License-Identifier: MIT
// Causes that lie inside a value: another scale, window, width or position than full() has.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/backend/symbolic/context.hpp>
#include <tpsim/backend/symbolic/value_difference.hpp>
#include <tpsim/core/text.hpp>
#include <tpsim/verify/cause.hpp>

namespace tpsim::detail {

/// Items of "1/sqrt(6), window 3" that the other list does not have, in order.
[[nodiscard]] inline std::string items_apart(const std::string& list, const std::string& other) {
  const std::vector<std::string> mine = split(list, ", "), theirs = split(other, ", ");
  std::string out;
  for (const std::string& item : mine)
    if (!item.empty() && std::find(theirs.begin(), theirs.end(), item) == theirs.end())
      out += (out.empty() ? "" : ", ") + item;
  return out.empty() ? "nothing" : out;
}

/// What is other inside `have`, where a cause can be told; nothing where it cannot.
/// @pre have != wanted, both complete
[[nodiscard]] inline std::optional<Cause> value_cause(const SymbolicContext& context, ValueId have,
                                                      ValueId wanted, int tp) {
  const ValueTable& values = context.values();
  const ValueDifference d = difference(values, have, wanted);
  if (!d.have) return Cause{context.name(d.wanted->value) + " is left out", "add it once"};
  if (!d.wanted)
    return Cause{context.name(d.have->value) + " is added where full() adds nothing",
                 "leave it out"};
  const ValueNode &a = values.node(d.have->value), &b = values.node(d.wanted->value);
  if (d.have->coef != d.wanted->coef) {
    if (tp > 1 && d.have->coef * Rational(tp) == d.wanted->coef)
      return Cause{"the ranks' partial products were averaged", "sum them: no division by tp"};
    return Cause{context.name(d.wanted->value) + " counts " + d.have->coef.str() + " times",
                 "count it " + d.wanted->coef.str() + " times"};
  }
  if (a.op != b.op) return std::nullopt;
  const std::string apart = items_apart(a.label, b.label), instead = items_apart(b.label, a.label);
  switch (a.op) {
    case ValueOp::attention:
      if (apart == instead) return std::nullopt;
      return Cause{"attention is computed with " + apart + ", not " + instead,
                   "scale, window, slopes and sinks are those of the whole model, also on a rank "
                   "that holds some heads"};
    case ValueOp::rope:
      return Cause{"heads are turned with " + apart + ", not " + instead,
                   "the model's rotary numbers; a token's position in its sequence"};
    case ValueOp::rms_norm:
    case ValueOp::centered:
    case ValueOp::square_sum:
    case ValueOp::column_sum:
      if (a.n != b.n)
        return Cause{"statistics over " + std::to_string(a.n) + " columns, the norm is over " +
                         std::to_string(b.n),
                     a.n < b.n ? "sum the squares of all ranks and divide by the whole width"
                               : "divide by the width of what is normalized"};
      if (a.label != b.label) return Cause{"a norm with another epsilon", "the model's epsilon"};
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace tpsim::detail
