// SPDX-License-Identifier: MIT
// Values and conditions of a model plan: expressions over the keys of a config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config_reader.hpp"

namespace tpsim::checkpoint_detail {

/// "head_dim else hidden_size / num_attention_heads"; the grammar stands at ModelPlan.
class ConfigExpression {
 public:
  /// @throws LayoutError with the text and what was expected
  [[nodiscard]] static ConfigExpression parse(std::string_view text);

  struct Factor {
    bool divides = false;
    std::string word;  ///< a key, a number, or true, false, none
    bool key = false;
  };
  using Choice = std::vector<Factor>;

  [[nodiscard]] const std::vector<Choice>& choices() const { return choices_; }
  /// As it was given.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Its keys, each once.
  [[nodiscard]] std::vector<std::string> keys() const;

 private:
  std::string text_;
  std::vector<Choice> choices_;
};

/// Evaluates expressions on one config; what is wrong goes to the problems, once for each message.
class ConfigEvaluator {
 public:
  ConfigEvaluator(const nlohmann::json& config, Problems& problems)
      : config_(&config), problems_(&problems) {}

  /// A size from 1 to `limit`, or 0 after a problem. `who`: "axis d".
  Index size(const std::string& text, const std::string& who, Index limit = max_size);
  /// A count from 0; nothing after a problem.
  std::optional<Index> count(const std::string& text, const std::string& who);
  /// A finite number; 0 after a problem.
  double number(const std::string& text, const std::string& who);
  /// False when its keys are absent.
  bool flag(const std::string& text, const std::string& who);
  /// Nothing when it is `none`, or when the first key is there and null.
  std::optional<Index> size_or_none(const std::string& text, const std::string& who);
  /// The string of the first key that is there, or the word itself when `known` has it.
  std::string word(const std::string& text, const std::string& who,
                   const std::vector<std::string>& known);

  /// The value of a key, perhaps inside an object; null when it is absent or null.
  [[nodiscard]] const nlohmann::json* find(const std::string& key) const;
  [[nodiscard]] bool is_null(const std::string& key) const;
  void problem(const std::string& message);

 private:
  const ConfigExpression::Choice* choose(const ConfigExpression& e, const std::string& who,
                                         bool required);
  std::optional<Index> product(const ConfigExpression::Choice& choice, const std::string& who,
                               Index least, Index limit);
  [[nodiscard]] static std::string shown_value(const nlohmann::json& value);

  const nlohmann::json* config_;
  Problems* problems_;
  std::vector<std::string> told_;
};

}  // namespace tpsim::checkpoint_detail
