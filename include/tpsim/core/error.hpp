// SPDX-License-Identifier: MIT
// The one error that tpsim's libraries throw for bad input.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tpsim {

/// One broken rule: the check id that names it (`divide`, `cover`, ...; see `tpsim explain`) and
/// the sentence with the numbers.
struct Violation {
  std::string rule;
  std::string message;
  friend bool operator==(const Violation&, const Violation&) = default;
};

/// A layout, shape or file that cannot be used. Carries every violated rule, not just the first,
/// and what would be legal instead. Only the command turns it into an exit status (2).
class LayoutError : public std::runtime_error {
 public:
  /// @param subject     what cannot be done, without a full stop: "tp 3 cannot split this layer"
  /// @param violations  every violated rule; may be empty when the subject says it all
  /// @param hint        what would be legal: "tp can be 1, 2, 4 or 8"; may be empty
  explicit LayoutError(std::string subject, std::vector<Violation> violations = {},
                       std::string hint = {})
      : std::runtime_error(text(subject, violations, hint)),
        subject_(std::move(subject)),
        violations_(std::move(violations)),
        hint_(std::move(hint)) {}

  [[nodiscard]] const std::string& subject() const { return subject_; }
  [[nodiscard]] const std::vector<Violation>& violations() const { return violations_; }
  [[nodiscard]] const std::string& hint() const { return hint_; }

 private:
  static std::string text(const std::string& subject, const std::vector<Violation>& violations,
                          const std::string& hint) {
    std::string all = subject;
    for (const Violation& v : violations) all += "\n  " + v.rule + "  " + v.message;
    if (!hint.empty()) all += "\nhint: " + hint;
    return all;
  }

  std::string subject_;
  std::vector<Violation> violations_;
  std::string hint_;
};

}  // namespace tpsim
