// SPDX-License-Identifier: MIT
// What all ranks of one world share in the static reading.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/candidates.hpp>
#include <tpsim/backend/symbolic/token_facts.hpp>
#include <tpsim/backend/symbolic/value_degree.hpp>
#include <tpsim/backend/symbolic/value_table.hpp>
#include <tpsim/core/finding.hpp>
#include <tpsim/core/weakening.hpp>

namespace tpsim {

/// Work and memory of one rank.
struct SymbolicCost {
  Index flops = 0;            ///< of linear: 2 tokens in out; of attention: of the keys seen
  Index weight_elements = 0;  ///< of all parameters made by empty()
  Index oracle_calls = 0;     ///< of activations, norms and scores that this rank computed
  [[nodiscard]] Index weight_bytes(DType dtype) const { return weight_elements * bytes_of(dtype); }
};

/// The values, the findings and the counters. Keep one for a world and for the reference that it
/// is compared with: ids of two contexts say nothing about each other. Not for several threads.
class SymbolicContext {
 public:
  /// For tests of the verifier alone: a rule that this reading leaves out.
  Weakening weakening = Weakening::none;
  /// Tokens of the batch that a lookup of every id, each once, stands for; nothing: those ids.
  std::optional<Index> lookup_tokens;

  [[nodiscard]] ValueTable& values() { return values_; }
  [[nodiscard]] const ValueTable& values() const { return values_; }
  /// As deep as a reader can follow.
  [[nodiscard]] std::string name(ValueId id) const {
    constexpr std::size_t readable = 120;
    int depth = 6;
    std::string text = values_.name(id, depth);
    while (text.size() > readable && depth > 2) text = values_.name(id, --depth);
    return text;
  }

  /// In the order of their discovery; equal ones once.
  [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
  void add(Finding finding) {
    if (std::find(findings_.begin(), findings_.end(), finding) == findings_.end())
      findings_.push_back(std::move(finding));
  }

  /// full() is right by definition: what it lets meet at another place than its own (columns of two
  /// values at a distance, a bias of another name) the ranks may let meet too, at the same
  /// distance. Rank -1, the reference, adds to the list. @param kind  the operation
  [[nodiscard]] bool may_meet(int tp_rank, char kind, std::uint64_t a, std::uint64_t b,
                              Index distance) {
    if (tp_rank < 0) meetings_.insert({kind, a, b, distance});
    return meetings_.count({kind, a, b, distance}) > 0;
  }

  /// Where each token stands, and which token it follows: as full() has it, or who asks first.
  [[nodiscard]] TokenFacts& positions() { return positions_; }
  [[nodiscard]] TokenFacts& predecessors() { return predecessors_; }

  /// A token of this attention sees so many keys; the most of all calls counts.
  void note_keys(ValueId attention, Index keys) {
    Index& most = keys_[attention];
    most = std::max(most, keys);
  }

  /// What a maximum, or its id, was chosen among.
  void note_candidates(ValueId choice, Candidates among) {
    candidates_.insert_or_assign(choice, std::move(among));
  }
  [[nodiscard]] const Candidates& candidates(ValueId choice) const {
    return candidates_.at(choice);
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
    return detail::ValueDegrees(values_, keys_).figures(outputs, tokens);
  }

 private:
  ValueTable values_;
  std::vector<Finding> findings_;
  std::vector<SymbolicCost> costs_;
  TokenFacts positions_, predecessors_;
  std::map<ValueId, Index> keys_;
  std::map<ValueId, Candidates> candidates_;
  std::set<std::tuple<char, std::uint64_t, std::uint64_t, Index>> meetings_;
};

}  // namespace tpsim
