// SPDX-License-Identifier: MIT
// What all ranks of one world share in the static reading.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/value_table.hpp>
#include <tpsim/core/finding.hpp>

namespace tpsim {

/// Work and memory of one rank.
struct SymbolicCost {
  Index flops = 0;            ///< 2 tokens in out for each linear, as the rank computes it
  Index weight_elements = 0;  ///< of all parameters made by empty()
  Index oracle_calls = 0;     ///< elements of all activations that this rank computed
  [[nodiscard]] Index weight_bytes(DType dtype) const { return weight_elements * bytes_of(dtype); }
};

/// The values, the findings and the counters. Keep one for a world and for the reference that it
/// is compared with: ids of two contexts say nothing about each other. Not for several threads.
class SymbolicContext {
 public:
  [[nodiscard]] ValueTable& values() { return values_; }
  [[nodiscard]] const ValueTable& values() const { return values_; }
  [[nodiscard]] std::string name(ValueId id) const { return values_.name(id); }

  /// In the order of their discovery; equal ones once.
  [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
  void add(Finding finding) {
    if (std::find(findings_.begin(), findings_.end(), finding) == findings_.end())
      findings_.push_back(std::move(finding));
  }

  /// Counters of a rank; rank -1 is the reference, full().
  [[nodiscard]] SymbolicCost& cost(int tp_rank) {
    const auto at = static_cast<std::size_t>(tp_rank + 1);
    if (at >= costs_.size()) costs_.resize(at + 1);
    return costs_[at];
  }

  /// N, d and D of the error bound for these outputs of `tokens` tokens, as if each rank-less
  /// element were computed once in the program and once in full(). Elements that several ranks
  /// compute add calls: cost(rank).oracle_calls counts what really ran.
  [[nodiscard]] SoundnessFigures soundness(std::span<const ValueId> outputs, Index tokens) const {
    SoundnessFigures f;
    Degree argument, output;
    std::vector<bool> seen(values_.size(), false);
    std::vector<ValueId> todo(outputs.begin(), outputs.end());
    for (const ValueId id : outputs) output = larger(output, values_.node(id).degree);
    while (!todo.empty()) {
      const ValueId id = todo.back();
      todo.pop_back();
      if (seen[static_cast<std::size_t>(id)]) continue;
      seen[static_cast<std::size_t>(id)] = true;
      const ValueNode& n = values_.node(id);
      if (n.op == ValueOp::silu) {
        f.oracle_calls += 2 * tokens * n.width;
        argument = larger(argument, values_.node(n.a).degree);
      }
      if (n.op == ValueOp::linear || n.op == ValueOp::silu || n.op == ValueOp::mul)
        todo.push_back(n.a);
      if (n.op == ValueOp::mul) todo.push_back(n.b);
      for (const SumTerm& t : n.sum) todo.push_back(t.value);
    }
    f.argument_degree = Degree::add(argument.num, argument.den);
    f.output_degree = Degree::add(output.num, output.den);
    return f;
  }

 private:
  static Degree larger(Degree a, Degree b) {
    return {std::max(a.num, b.num), std::max(a.den, b.den)};
  }
  ValueTable values_;
  std::vector<Finding> findings_;
  std::vector<SymbolicCost> costs_;
};

}  // namespace tpsim
