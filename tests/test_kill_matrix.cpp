// SPDX-License-Identifier: MIT
// The kill matrix: every fault, on every layer and shape that it can be put into, by every reading.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <tests/support/catch.hpp>
#include <tests/support/kill_matrix.hpp>

#include <tpsim/verify/replay.hpp>

namespace kill_matrix_tests {
namespace {

using namespace tpsim;
using namespace tpsim::testing;

struct FaultRow {
  const Fault* fault;
  std::vector<Cell> cells;
  [[nodiscard]] std::size_t count(Difference d) const {
    return static_cast<std::size_t>(std::count_if(
        cells.begin(), cells.end(), [&](const Cell& c) { return c.difference == d; }));
  }
};

const std::vector<FaultRow>& matrix() {
  static const std::vector<FaultRow> rows = [] {
    std::vector<FaultRow> all;
    for (const Fault& f : faults()) all.push_back({&f, cells_of(f)});
    return all;
  }();
  return rows;
}

std::string command_of(const FaultRow& row, const Cell& cell) {
  return shell_line(replay_command(cell.spec, row.fault->name));
}

/// "static 12/12  exact 12/12  numeric 10/12 (the difference is 0.3 of the rounding bound)"
std::string line_of(const FaultRow& row) {
  std::string out = fmt::format("{:<26}", row.fault->name);
  for (std::size_t i = 0; i < all_readings.size(); ++i) {
    std::size_t applicable = 0, found = 0;
    std::map<std::string, int> reasons;
    for (const Cell& c : row.cells) {
      if (c.difference == Difference::none) continue;
      ++applicable;
      found += c.found[i] ? 1 : 0;
      if (!c.found[i]) ++reasons[c.why[i]];
    }
    out += fmt::format(" {} {}/{}", name(all_readings[i]), found, applicable);
    for (const auto& [reason, times] : reasons) out += fmt::format(" ({}: {})", times, reason);
  }
  return out + fmt::format("  equivalent {}", row.count(Difference::none));
}

}  // namespace

// One test, so that one process judges the cells once.
TEST_CASE("kill matrix: every reading's verdict on every cell") {
  SECTION("every fault shows in some cell, and every fault that shows is found") {
    std::size_t applicable = 0, killed = 0, equivalent = 0;
    for (const FaultRow& row : matrix()) {
      UNSCOPED_INFO(line_of(row));
      fmt::print("{}\n", line_of(row));
      INFO(row.fault->name);
      CHECK(row.cells.size() > row.count(Difference::none));
      for (const Cell& cell : row.cells) {
        if (cell.difference != Difference::values) continue;
        ++applicable;
        if (cell.found[0] || cell.found[1])
          ++killed;
        else
          FAIL_CHECK("survives the static and the exact reading: " << command_of(row, cell));
      }
      equivalent += row.count(Difference::none);
    }
    fmt::print(
        "{} of {} cells with another value are found by the static or the exact reading; {} "
        "cells are equivalent\n",
        killed, applicable, equivalent);
    CHECK(applicable > 500);
    CHECK(killed == applicable);
  }

  SECTION("a cell that is equivalent to the right program is not complained of") {
    for (const FaultRow& row : matrix())
      for (const Cell& cell : row.cells) {
        if (cell.difference != Difference::none) continue;
        INFO(command_of(row, cell));
        for (std::size_t i = 0; i < all_readings.size(); ++i) {
          INFO(name(all_readings[i]));
          CHECK(!cell.found[i]);
        }
      }
  }

  SECTION("other collectives or shards with the same result are found statically") {
    for (const FaultRow& row : matrix())
      for (const Cell& cell : row.cells) {
        if (cell.difference != Difference::calls_or_shards) continue;
        INFO(command_of(row, cell));
        CHECK(cell.found[0]);
      }
  }

  SECTION("a fault of precision alone is found by the numeric reading") {
    for (const FaultRow& row : matrix()) {
      if (row.count(Difference::precision) == 0) continue;
      const bool found =
          std::any_of(row.cells.begin(), row.cells.end(), [](const Cell& c) { return c.found[2]; });
      INFO(row.fault->name);
      CHECK(found);
    }
  }
}

TEST_CASE("kill matrix: findings come from what is seen; the fault's name is not known") {
  std::size_t compared = 0;
  for (const Fault& fault : faults())
    for (const std::string& layer : fault.layers) {
      LayerSpec spec = shapes_of(layer).front();
      spec.tp = 4;
      spec = spec_for_fault(spec, fault.name);
      if (!violations(spec).empty()) continue;
      // The same code as somebody's own layer, who has no name for what is wrong with it.
      const auto nameless = make_varied_subject(spec, fault.variation(spec));
      const Report named = verify(*cli::subject_of(spec, fault.name)), other = verify(*nameless);
      INFO(fault.name << " " << layer);
      REQUIRE(named.checks.size() == other.checks.size());
      for (std::size_t i = 0; i < named.checks.size(); ++i) {
        CHECK(named.checks[i].findings == other.checks[i].findings);
        for (const Finding& f : named.checks[i].findings) {
          ++compared;
          CHECK((f.message + f.cause + f.repair).find(fault.name) == std::string::npos);
        }
      }
    }
  CHECK(compared > faults().size());
}

TEST_CASE("faults of a request: each is refused with its rule before anything is loaded") {
  struct Refusal {
    const char *what, *layer;
    int tp;
    std::function<void(LayerSpec&)> change;
    const char *rule, *says;
  };
  const std::vector<Refusal> refusals{
      {"empty shards on the last ranks", "column", 8, [](LayerSpec& s) { s.out = 6; }, "divide",
       "6 output rows over 8 ranks"},
      {"a negative size", "row", 2, [](LayerSpec& s) { s.in = -4; }, "divide", "must be positive"},
      {"divisibility of the sum alone", "merged", 4,
       [](LayerSpec& s) {
         s.parts = {{"gate", 6}, {"up", 10}};
       },
       "divide", "part gate"},
      {"divisibility of fused heads alone", "qkv", 4,
       [](LayerSpec& s) {
         s.qkv = {8, 4, 6, 2, 0};
       },
       "divide", "6 query heads"},
      {"a cut inside a head", "qkv", 8,
       [](LayerSpec& s) {
         s.qkv = {8, 4, 4, 2, 0};
       },
       "divide", "4 query heads"},
      {"kv heads that neither divide nor are divided", "qkv", 3,
       [](LayerSpec& s) {
         s.qkv = {8, 2, 12, 4, 0};
       },
       "divide", "4 kv heads"},
      {"query heads that do not go round the kv heads", "qkv", 2,
       [](LayerSpec& s) {
         s.qkv = {8, 2, 6, 4, 0};
       },
       "heads", "6"},
  };
  for (const Refusal& r : refusals) {
    LayerSpec spec = shapes_of(r.layer).front();
    spec.tp = r.tp;
    r.change(spec);
    INFO(r.what);
    bool told = false;
    for (const Violation& v : violations(spec)) {
      UNSCOPED_INFO(v.rule << ": " << v.message);
      told = told || (v.rule == r.rule && v.message.find(r.says) != std::string::npos);
    }
    CHECK(told);
    CHECK_THROWS_AS(make_subject(spec), LayoutError);
  }
  // Equal thirds for q, k and v under grouped queries.
  LayerSpec thirds = shapes_of("qkv").front();
  thirds.tp = 2;
  thirds.disk = "q:kv*d + k:kv*d + v:kv*d";
  CHECK_THROWS_AS(make_subject(thirds), LayoutError);
}

}  // namespace kill_matrix_tests
