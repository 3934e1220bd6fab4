// SPDX-License-Identifier: MIT
// Properties as Catch2 tests (version 2 or 3).
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#elif __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#error "properties/catch.hpp needs Catch2, version 2 or 3"
#endif

#include <properties/laws/all.hpp>
#include <properties/module.hpp>
#include <properties/property.hpp>

namespace tpsim::properties {

/// Fails the running test once, with the smallest case, when the law does not hold. The test goes
/// on. Returns how much was compared: 0 means that the law says nothing about this layer; nothing,
/// that RC_PARAMS asks for a case of another property alone.
inline std::optional<Index> property(const Law& law, const Candidate& candidate,
                                     const Settings& settings = rc::detail::configuration()) {
  const PropertyResult result = run_property(law, candidate, settings);
  if (result.left_out) return std::nullopt;
  if (result.passed)
    SUCCEED(property_name(law, candidate) << ": " << result.compared << " compared");
  else
    FAIL_CHECK(result.text);
  return result.compared;
}

/// Every law on one layer: `run_all_laws({.layer = "qkv"})`, or with your own `make`.
/// @returns the ids of the laws that had nothing to compare
inline std::vector<std::string> run_all_laws(const Candidate& candidate) {
  std::vector<std::string> silent;
  for (const Law& law : all_laws())
    if (property(law, candidate) == Index{0}) silent.push_back(law.id);
  return silent;
}

/// Every law on a user's module: `run_all_laws(MyModule{}, shapes)`. Shapes as in candidate().
template <class Module, class Shapes>
  requires requires(const Module& module, const Shapes& shapes) { candidate(module, shapes); }
std::vector<std::string> run_all_laws(const Module& module, const Shapes& shapes) {
  return run_all_laws(candidate(module, shapes));
}
template <class Module, class Shape>
  requires ParallelModule<Module, Shape>
std::vector<std::string> run_all_laws(const Module& module, std::initializer_list<Shape> shapes) {
  return run_all_laws(candidate(module, std::vector<Shape>(shapes)));
}

}  // namespace tpsim::properties
