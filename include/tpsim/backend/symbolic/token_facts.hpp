// SPDX-License-Identifier: MIT
// What is true of a token in every stage: where it stands in its sequence, what it comes after.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/layout/runs.hpp>

namespace tpsim {

/// A number for each token. The first telling counts. A value that agrees with it needs no mention
/// of the number, and so is the same value for a whole prompt, its chunks, and token by token.
class TokenFacts {
 public:
  /// A token that was told otherwise before.
  struct Conflict {
    Index index = 0;  ///< in the list of tokens
    Index token = 0, told = 0, agreed = 0;
  };

  /// Of token tokens[i], numbers[i]. @pre as many numbers as tokens
  [[nodiscard]] std::optional<Conflict> tell(const Runs& tokens,
                                             const std::vector<Index>& numbers) {
    std::optional<Conflict> first;
    Index i = 0;
    for (const Run& run : tokens)
      for (Index j = 0; j < run.length; ++j, ++i) {
        const Index number = numbers[static_cast<std::size_t>(i)];
        const auto [it, fresh] = numbers_.emplace(run.at(j), number);
        if (!first && it->second != number) first = Conflict{i, run.at(j), number, it->second};
      }
    return first;
  }
  /// "2 later" when all tokens have a number at one distance from the agreed one, else the numbers:
  /// equal texts are equal deviations.
  [[nodiscard]] std::string deviation(const Runs& tokens, const std::vector<Index>& numbers) const {
    Runs told;
    std::optional<Index> distance;
    bool constant = true;
    Index i = 0;
    for (const Run& run : tokens)
      for (Index j = 0; j < run.length; ++j, ++i) {
        const Index number = numbers[static_cast<std::size_t>(i)];
        const Index apart = number - numbers_.at(run.at(j));
        told.append({number, 1, 1});
        constant = constant && distance.value_or(apart) == apart;
        distance = apart;
      }
    if (distance && constant)
      return std::to_string(*distance > 0 ? *distance : -*distance) +
             (*distance > 0 ? " later" : " earlier");
    constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
    return told.str(all) + " for tokens " + tokens.str(all);
  }

 private:
  std::map<Index, Index> numbers_;
};

}  // namespace tpsim
