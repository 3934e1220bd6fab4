// SPDX-License-Identifier: MIT
// Virtual ranks: mismatched collectives, early returns, deadlocks.
#include <functional>
#include <optional>
#include <string>
#include <tests/support/catch.hpp>
#include <tests/support/plain_ops.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

using namespace tpsim;
using namespace tpsim::test;

namespace {

const PlainOps ops;
class OtherOps final : public PlainOps {};
const OtherOps other_ops;

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
  struct Row {
    const char* difference;
    std::function<void(Communicator&, bool odd)> call;  // one rank of three is odd
  };
  static Plain t[3];
  const auto x = [](Communicator& c, Index rows = 2, Index cols = 3, DType type = DType::f64) {
    Plain& mine = t[c.rank()] = Plain(rows, cols);
    mine.type = type;
    return ops(mine);
  };
  const Row table[] = {
      {"different operations, all_reduce on rank 0 and barrier on rank 1",
       [&](auto& c, bool odd) { odd ? c.barrier() : c.all_reduce(x(c), x(c)); }},
      {"different operations, all_gather on rank 0 and split on rank 1",
       [&](auto& c, bool odd) { odd ? (void)c.split(0, 0) : c.all_gather(x(c), x(c), 1); }},
      {"different reductions, sum on rank 0 and max on rank 1",
       [&](auto& c, bool odd) { c.all_reduce(x(c), x(c), odd ? Reduction::max : Reduction::sum); }},
      {"different shapes, [2, 3] on rank 0 and [3, 2] on rank 1",
       [&](auto& c, bool odd) { c.all_reduce(x(c, odd ? 3 : 2, odd ? 2 : 3), x(c)); }},
      {"different shapes, [2, 3] on rank 0 and [3, 3] on rank 1",
       [&](auto& c, bool odd) { c.all_gather(x(c, odd ? 3 : 2), x(c), 1); }},
      {"different shapes, [2, 3] on rank 0 and [2, 4] on rank 1",
       [&](auto& c, bool odd) { c.broadcast(x(c, 2, odd ? 4 : 3), x(c), 0); }},
      {"different dtypes, f64 on rank 0 and bf16 on rank 1",
       [&](auto& c, bool odd) { c.all_reduce(x(c, 2, 3, odd ? DType::bf16 : DType::f64), x(c)); }},
      {"different roots, 0 on rank 0 and 2 on rank 1",
       [&](auto& c, bool odd) { c.broadcast(x(c), x(c), odd ? 2 : 0); }},
      {"different dims, 0 on rank 0 and 1 on rank 1",
       [&](auto& c, bool odd) { c.all_gather(x(c), x(c), odd ? 1 : 0); }},
      {"different tensor types",
       [&](auto& c, bool odd) {
         Plain y(2, 3);
         const Buffer b = odd ? other_ops(y) : ops(y);
         c.all_reduce(b, b);
       }},
      {"reduce_scatter of [2, 4]: 4 entries along dim 1 do not divide over 3 ranks",
       [&](auto& c, bool) { c.reduce_scatter(x(c, 2, 4), x(c, 2, 4), 1); }},
      {"all_to_all of [2, 3]: 2 entries along dim 0 do not divide over 3 ranks",
       [&](auto& c, bool) { c.all_to_all(x(c), x(c), 0); }},
      {"gather has root 3 in a group of 3", [&](auto& c, bool) { c.gather(x(c), x(c), 3, 0); }},
      {"broadcast has root -1 in a group of 3",
       [&](auto& c, bool) { c.broadcast(x(c), x(c), -1); }},
      {"all_gather has dim 2 of a tensor [2, 3]",
       [&](auto& c, bool) { c.all_gather(x(c), x(c), 2); }},
  };
  for (const Row& row : table) {
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
      CHECK(contains(r.str(), "in world #1 at test_virtual_ranks_faults.cpp:"));
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
