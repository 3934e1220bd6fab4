// SPDX-License-Identifier: MIT
// A small layer to verify, and what a report says of it.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include <tests/support/catch.hpp>

#include <sim/subjects.hpp>
#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/verify.hpp>

namespace tpsim::testing {

// 8 query heads and 2 kv heads of 6 rows, hidden 32, unequal parts: shapes that hide little.
inline LayerSpec small(const std::string& layer, int tp) {
  LayerSpec s;
  s.layer = layer;
  s.tp = tp;
  s.tokens = 5;
  s.in = 16;
  s.out = 24;
  s.parts = {{"gate", 16}, {"up", 8}};
  s.qkv = {32, 6, 8, 2, 0};
  s.intermediate = 16;
  s.vocab = 24;
  return s;
}

/// An embedding or a head of 6 columns. @param cut  "padded(64)"
inline LayerSpec vocab_layer(const std::string& layer, int tp, Index vocab,
                             const std::string& cut) {
  LayerSpec s;
  s.layer = layer;
  s.tp = tp;
  s.tokens = 5;
  s.vocab = vocab;
  s.vocab_cut = cut;
  s.qkv.hidden = 6;
  return s;
}

inline std::set<std::string> failed(const Report& report) {
  std::set<std::string> ids;
  for (const CheckResult& c : report.checks)
    if (c.result == Outcome::fail) ids.insert(c.id);
  return ids;
}

inline const CheckResult& check(const Report& report, std::string_view id) {
  const CheckResult* c = report.find(id);
  REQUIRE(c != nullptr);
  return *c;
}

}  // namespace tpsim::testing
