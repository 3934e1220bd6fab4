// SPDX-License-Identifier: MIT
// Virtual ranks: mismatched collectives, early returns, deadlocks.
#include <functional>
#include <optional>
#include <string>
#include <tests/support/catch.hpp>
#include <tests/support/mismatched_calls.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace virtual_ranks_faults_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {

using Program = std::function<void(Communicator&)>;

/// The mismatch that the program ends in, the same under every schedule.
CollectiveMismatch mismatch(int n, const Program& program) {
  std::optional<CollectiveMismatch> found;
  for (const Schedule s : {Schedule::in_order(), Schedule::reversed(), Schedule::shuffled(1)}) {
    VirtualRanks world{n, s};
    for (int again = 0; again < 2; ++again) {  // a failed world can run again
      try {
        world.run(program);
        FAIL("no mismatch was found");
      } catch (const CollectiveMismatch& e) {
        REQUIRE(world.failed_rank() == -1);
        REQUIRE(e.ranks().size() == static_cast<std::size_t>(n));
        if (found) REQUIRE(std::string(e.what()) == found->what());
        found = e;
      }
    }
    int ran = 0;
    world.run([&](Communicator& comm) { comm.barrier(), ++ran; });
    REQUIRE(ran == n);
  }
  return *found;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("virtual ranks: calls that do not match are findings that list every rank") {
  std::vector<Plain> t(3);
  for (const MismatchedCall& row : mismatched_calls(t)) {
    const CollectiveMismatch e = mismatch(3, [&](Communicator& c) {
      c.barrier();
      row.call(c, c.rank() == 1);
      FAIL("a mismatched collective returned");
    });
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(contains(text, std::string("collectives  group world #1: ") + row.difference));
    const bool hangs = contains(row.difference, "different ");
    CHECK(contains(text, "NCCL would hang") == hangs);
    CHECK(contains(text, "the ranks agree on") != hangs);
    CHECK(e.violations().front().rule == "collectives");
    for (const RankReport& r : e.ranks()) {
      CHECK(contains(text, r.str()));
      CHECK(contains(r.str(), "in world #1 at mismatched_calls.hpp:"));
    }
  }
}

TEST_CASE("virtual ranks: every difference is named at once and equal ranks share a line") {
  Plain a(2, 3), b(4, 4);
  b.type = DType::f16;
  unsigned line = 0;
  const CollectiveMismatch e = mismatch(8, [&](Communicator& c) {
    Plain& mine = c.rank() == 5 ? b : a;
    line = __LINE__ + 1;
    c.all_reduce(ops(mine), ops(mine), c.rank() == 5 ? Reduction::max : Reduction::sum);
  });
  const std::string at = " in world #0 at test_virtual_ranks_faults.cpp:" + std::to_string(line);
  CHECK(contains(e.what(), "\n  ranks 0-4: all_reduce(sum) [2, 3] f64" + at));
  CHECK(contains(e.what(), "\n  rank 5: all_reduce(max) [4, 4] f16" + at));
  CHECK(contains(e.what(), "\n  ranks 6-7: all_reduce(sum) [2, 3] f64" + at));
  CHECK(e.violations().size() == 3);
  CHECK(e.ranks()[5].shape == Shape(4, 4));
  CHECK(e.ranks()[5].dtype == DType::f16);
  CHECK(e.ranks()[5].reduction == Reduction::max);
  CHECK(e.ranks()[5].at.line() == line);
}

TEST_CASE("virtual ranks: a rank that returns while others wait is a finding") {
  for (const int early : {0, 1, 3}) {
    const CollectiveMismatch e = mismatch(4, [&](Communicator& c) {
      c.barrier();
      if (c.rank() != early) c.barrier();
    });
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(contains(text, "rank " + std::to_string(early) +
                             ": returned after 1 collective, the last barrier in world #0"));
    CHECK(contains(
        text, "group world #1: 3 of 4 ranks wait; rank " + std::to_string(early) + " returned"));
    CHECK(e.ranks()[static_cast<std::size_t>(early)].returned);
  }
  CHECK(contains(mismatch(2,
                          [](Communicator& c) {
                            if (c.rank() == 0) c.barrier();
                          })
                     .what(),
                 "rank 1: returned after 0 collectives\n"));
}

TEST_CASE("virtual ranks: groups that wait for each other are a finding") {
  const CollectiveMismatch e = mismatch(4, [](Communicator& c) {
    const auto pair = c.split(c.rank() / 2, 0);
    if (c.rank() == 1) c.barrier();
    pair->barrier();
    c.barrier();
  });
  const std::string text = e.what();
  CAPTURE(text);
  CHECK(contains(text, "group world/0 #0: 1 of 2 ranks wait; rank 1 waits in world"));
  CHECK(contains(text, "group world #1: 3 of 4 ranks wait; rank 0 waits in world/0"));
  CHECK(e.ranks()[0].group == "world/0");
  CHECK(e.ranks()[0].group_rank == 0);
  CHECK(e.ranks()[3].collectives == 2);
}

}  // namespace virtual_ranks_faults_tests
