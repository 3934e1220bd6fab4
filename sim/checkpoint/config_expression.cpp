// SPDX-License-Identifier: MIT
#include "config_expression.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>

namespace tpsim::checkpoint_detail {
namespace {

bool is_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// The next word, or one of * and /; empty at the end.
std::string next_token(std::string_view& text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty()) return {};
  std::size_t n = 1;
  if (is_letter(text.front())) {
    const bool number = is_digit(text.front());
    const auto goes_on = [&](std::size_t i) {
      const bool exponent = number && (text[i - 1] == 'e' || text[i - 1] == 'E');
      return is_letter(text[i]) || (exponent && (text[i] == '-' || text[i] == '+'));
    };
    while (n < text.size() && goes_on(n)) ++n;
  }
  const std::string token(text.substr(0, n));
  text.remove_prefix(n);
  return token;
}

std::optional<double> as_number(const std::string& word) {
  if (word.empty() || !is_digit(word.front())) return std::nullopt;
  std::size_t used = 0;
  try {
    const double value = std::stod(word, &used);
    if (used == word.size() && std::isfinite(value)) return value;
  } catch (const std::exception&) {  // out of range
  }
  return std::nullopt;
}

std::string keys_of(const ConfigExpression::Choice& choice) {
  std::string out;
  for (const auto& factor : choice)
    if (factor.key) out += (out.empty() ? "" : " and ") + factor.word;
  return out;
}

}  // namespace

ConfigExpression ConfigExpression::parse(std::string_view text) {
  const auto refuse = [&](const std::string& what) {
    throw LayoutError("cannot read the expression " + shown(text), {{"names", what}},
                      "for example 'head_dim else hidden_size / num_attention_heads'");
  };
  ConfigExpression out;
  out.text_ = std::string(text);
  constexpr std::size_t longest = 500;
  if (text.size() > longest) refuse("it is over 500 characters long");
  std::string_view rest = text;
  out.choices_.emplace_back();
  bool divides = false;
  while (true) {
    const std::string word = next_token(rest);
    if (word.empty()) refuse("a key or a number must follow, and nothing does");
    const bool numeric = is_digit(word.front());
    if (!is_letter(word.front()) || word == "else" || word.front() == '.' || word.back() == '.')
      refuse("a key or a number must stand where " + shown(word) + " does");
    if (numeric && !as_number(word)) refuse(shown(word) + " is no number");
    const bool literal = numeric || word == "true" || word == "false" || word == "none";
    out.choices_.back().push_back({divides, word, !literal});
    const std::string between = next_token(rest);
    if (between.empty()) break;
    divides = between == "/";
    if (between == "else")
      out.choices_.emplace_back();
    else if (between != "*" && between != "/")
      refuse("'*', '/' or 'else' must stand where " + shown(between) + " does");
  }
  for (const Choice& choice : out.choices_)
    for (const Factor& f : choice)
      if (choice.size() > 1 && (f.word == "true" || f.word == "false" || f.word == "none"))
        refuse(f.word + " is no number");
  return out;
}

std::vector<std::string> ConfigExpression::keys() const {
  std::vector<std::string> out;
  for (const Choice& choice : choices_)
    for (const Factor& f : choice)
      if (f.key && std::find(out.begin(), out.end(), f.word) == out.end()) out.push_back(f.word);
  return out;
}

const nlohmann::json* ConfigEvaluator::find(const std::string& key) const {
  const nlohmann::json* at = config_;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = key.find('.', begin);
    const auto it = at->is_object() ? at->find(key.substr(begin, dot - begin)) : at->end();
    if (!at->is_object() || it == at->end() || it->is_null()) return nullptr;
    at = &*it;
    if (dot == std::string::npos) return at;
    begin = dot + 1;
  }
}

bool ConfigEvaluator::is_null(const std::string& key) const {
  const auto it = config_->find(key);
  return it != config_->end() && it->is_null();
}

void ConfigEvaluator::problem(const std::string& message) {
  if (std::find(told_.begin(), told_.end(), message) != told_.end()) return;
  told_.push_back(message);
  problems_->add("config", message);
}

std::string ConfigEvaluator::shown_value(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return shown(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

const ConfigExpression::Choice* ConfigEvaluator::choose(const ConfigExpression& e,
                                                        const std::string& who, bool required) {
  std::string wanted;
  for (const ConfigExpression::Choice& choice : e.choices()) {
    if (std::all_of(choice.begin(), choice.end(),
                    [&](const auto& f) { return !f.key || find(f.word) != nullptr; }))
      return &choice;
    wanted += (wanted.empty() ? "" : ", or ") + keys_of(choice);
  }
  if (required) {
    const bool one = wanted.find(' ') == std::string::npos;
    problem(one ? fmt::format("{} is missing ({})", wanted, who)
                : fmt::format("{} needs {}", who, wanted));
  }
  return nullptr;
}

std::optional<Index> ConfigEvaluator::product(const ConfigExpression::Choice& choice,
                                              const std::string& who, Index least, Index limit) {
  Index above = 1, below = 1;
  std::string text;
  for (const ConfigExpression::Factor& f : choice) {
    Index n = 0;
    if (f.key) {
      const nlohmann::json& value = *find(f.word);
      const bool fits = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(limit);
      // Inside a product a factor must be positive, alone it may be 0 where that is legal.
      const Index smallest = choice.size() > 1 ? 1 : least;
      if (!fits || value.get<Index>() < smallest) {
        problem(fmt::format("{} is {}; legal: an integer from {} to {}", f.word, shown_value(value),
                            smallest, limit));
        return std::nullopt;
      }
      n = value.get<Index>();
    } else {
      const double value = as_number(f.word).value_or(-1);
      if (value < 0 || value > static_cast<double>(limit) || value != std::floor(value)) {
        problem(fmt::format("{} is {}, which is no size", who, f.word));
        return std::nullopt;
      }
      n = static_cast<Index>(value);
    }
    text += (text.empty() ? ""
             : f.divides  ? " / "
                          : " * ") +
            f.word + (f.key ? " " + std::to_string(n) : "");
    Index& side = f.divides ? below : above;
    if (n != 0 && side > (Index{1} << 48U) / n) {
      problem(fmt::format("{}: {} is too large", who, text));
      return std::nullopt;
    }
    side *= n;
  }
  if (below == 0 || above % below != 0) {
    problem(below == 0 ? fmt::format("{}: {} divides by 0", who, text)
                       : fmt::format("{}: {} leaves {}", who, text, above % below));
    return std::nullopt;
  }
  const Index n = above / below;
  if (n < least || n > limit) {
    problem(fmt::format("{}: {} is {}; legal: {} to {}", who, text, n, least, limit));
    return std::nullopt;
  }
  return n;
}

Index ConfigEvaluator::size(const std::string& text, const std::string& who, Index limit) {
  const ConfigExpression e = ConfigExpression::parse(text);
  const ConfigExpression::Choice* choice = choose(e, who, true);
  return choice == nullptr ? 0 : product(*choice, who, 1, limit).value_or(0);
}

std::optional<Index> ConfigEvaluator::count(const std::string& text, const std::string& who) {
  const ConfigExpression e = ConfigExpression::parse(text);
  const ConfigExpression::Choice* choice = choose(e, who, true);
  return choice == nullptr ? std::nullopt : product(*choice, who, 0, max_size);
}

std::optional<Index> ConfigEvaluator::size_or_none(const std::string& text,
                                                   const std::string& who) {
  const ConfigExpression e = ConfigExpression::parse(text);
  const ConfigExpression::Factor& first = e.choices().front().front();
  if (first.key && is_null(first.word)) return std::nullopt;
  const ConfigExpression::Choice* choice = choose(e, who, true);
  if (choice == nullptr || choice->front().word == "none") return std::nullopt;
  return product(*choice, who, 1, max_size);
}

double ConfigEvaluator::number(const std::string& text, const std::string& who) {
  const ConfigExpression e = ConfigExpression::parse(text);
  const ConfigExpression::Choice* choice = choose(e, who, true);
  if (choice == nullptr) return 0;
  double result = 1;
  for (const ConfigExpression::Factor& f : *choice) {
    double value = as_number(f.word).value_or(0);
    if (f.key) {
      const nlohmann::json& given = *find(f.word);
      if (!given.is_number()) {
        problem(fmt::format("{} is {}; legal: a number", f.word, shown_value(given)));
        return 0;
      }
      value = given.get<double>();
    }
    result = f.divides ? result / value : result * value;
  }
  if (std::isfinite(result)) return result;
  problem(fmt::format("{} ({}) is not finite", who, text));
  return 0;
}

bool ConfigEvaluator::flag(const std::string& text, const std::string& who) {
  const ConfigExpression e = ConfigExpression::parse(text);
  const ConfigExpression::Choice* choice = choose(e, who, false);
  if (choice == nullptr) return false;
  const ConfigExpression::Factor& f = choice->front();
  if (!f.key) return f.word == "true";
  const nlohmann::json& value = *find(f.word);
  if (value.is_boolean()) return value.get<bool>();
  problem(fmt::format("{} is {}; legal: true, false", f.word, shown_value(value)));
  return false;
}

std::string ConfigEvaluator::word(const std::string& text, const std::string& who,
                                  const std::vector<std::string>& known) {
  const ConfigExpression e = ConfigExpression::parse(text);
  std::string keys;
  for (const ConfigExpression::Choice& choice : e.choices()) {
    const std::string& word = choice.front().word;
    if (const nlohmann::json* value = find(word)) {
      if (value->is_string()) return value->get<std::string>();
      problem(fmt::format("{} is {}; legal: a string", word, shown_value(*value)));
      return {};
    }
    if (std::find(known.begin(), known.end(), word) != known.end()) return word;
    keys += (keys.empty() ? "" : " or ") + word;
  }
  problem(fmt::format("{} is missing ({})", keys, who));
  return {};
}

}  // namespace tpsim::checkpoint_detail
