// SPDX-License-Identifier: MIT
// What a law is, and what it is applied to.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <tpsim/verify/linear_subjects.hpp>

#include <properties/generators.hpp>

namespace tpsim::properties {

/// Something that builds layers: the library's, a faulty one, your own.
struct Candidate {
  std::string layer = {};  ///< its name in reports, and which shapes it is given
  std::function<std::unique_ptr<Subject>(const LayerSpec&)> make = [](const LayerSpec& s) {
    return make_subject(s);
  };
  /// Builds a case that is no LayerSpec's: a user's module (properties/module.hpp). Null: `make`.
  std::function<std::unique_ptr<Subject>(const Case&)> make_case = {};
  std::string fault = {};  ///< for the command that runs a case again; "" for none

  /// Shapes that it must get right, and shapes that it must refuse; empty: those of `layer`.
  std::function<rc::Gen<Case>()> legal = {}, illegal = {};
  /// Why it must refuse a shape.
  std::function<std::vector<Reason>(const LayerSpec&)> broken = broken_rules;

  /// @throws LayoutError when the case is illegal
  [[nodiscard]] std::unique_ptr<Subject> subject(const Case& c) const {
    return make_case ? make_case(c) : make(c.spec);
  }
  /// A user's module has illegal shapes only when it names them.
  [[nodiscard]] bool has_illegal() const { return illegal || !make_case; }
  [[nodiscard]] rc::Gen<Case> legal_or_own() const { return legal ? legal() : legal_cases(layer); }
  [[nodiscard]] rc::Gen<Case> illegal_or_own() const {
    return illegal ? illegal() : illegal_cases(layer);
  }
};

/// What one law says about one case.
struct Verdict {
  Index compared = 0;   ///< elements, rows or reasons looked at; 0: the law does not apply
  std::string because;  ///< what breaks the law; "" when it holds
  /// The case to run again, when the law looked at a variation of the one that it was given.
  std::optional<Case> variation = {};
};

struct Law {
  std::string id;        ///< "cover"
  std::string sentence;  ///< "params partition the full tensor"
  std::function<Verdict(const Candidate&, const Case&)> check;
  bool on_illegal = false;  ///< about shapes that must be refused
};

/// The law's verdict; an exception breaks every law.
[[nodiscard]] inline Verdict judge(const Law& law, const Candidate& candidate, const Case& c) {
  try {
    return law.check(candidate, c);
  } catch (const std::exception& e) {
    return {1, e.what()};
  }
}

}  // namespace tpsim::properties
