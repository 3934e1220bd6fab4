// SPDX-License-Identifier: MIT
// Virtual ranks: every collective against its definition, groups, traces, order, stacks.
#include <rapidcheck.h>
#include <Eigen/Core>
#include <string>
#include <tests/support/catch.hpp>
#include <tests/support/drive_collectives.hpp>
#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace virtual_ranks_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {
const PlainOps ops;
}  // namespace

TEST_CASE("virtual ranks: every collective gives its definition at 1 to 512 ranks") {
  for (const int n : {1, 2, 3, 8, 64, 512}) {
    const Expected want(n);
    VirtualRanks world{n};
    int ran = 0;
    std::string bad;
    world.run([&](Communicator& comm) {
      REQUIRE(comm.size() == n);
      REQUIRE(comm.rank() == ran++);  // the first collective comes later
      comm.barrier();
      bad += wrong(comm, want, false);
      bad += wrong(comm, want, true);
    });
    CAPTURE(n);
    CHECK(bad == "");
    CHECK(ran == n);
    CHECK(world.failed_rank() == -1);
  }
}

TEST_CASE("virtual ranks: groups of a split order their ranks by key and may be split again") {
  for (const int n : {2, 3, 8, 64}) {
    VirtualRanks world{n};
    std::vector<Expected> want;
    for (int m = 0; m <= n; ++m) want.emplace_back(std::max(m, 1));
    std::string bad;
    int outside = 0;
    world.run([&](Communicator& comm) {
      const int me = comm.rank();
      // colour 0: even ranks, backwards; colour 1: odd ranks; the last rank joins none
      const bool last = n > 2 && me == n - 1;
      const auto group = comm.split(last ? -1 : me % 2, me % 2 == 0 ? -me : 0);
      if (group == nullptr) {
        ++outside;
        comm.barrier();
        return;
      }
      const int evens = (n > 2 ? n : n + 1) / 2;
      REQUIRE(group->group() == (me % 2 == 0 ? "world/0" : "world/1"));
      REQUIRE(group->rank() == (me % 2 == 0 ? evens - 1 - me / 2 : me / 2));
      bad += wrong(*group, want[static_cast<std::size_t>(group->size())], true);
      const auto half = group->split(group->rank() % 2, 0);
      REQUIRE(half->group() == std::string(group->group()) + (group->rank() % 2 ? "/1" : "/0"));
      REQUIRE(half->rank() == group->rank() / 2);
      bad += wrong(*half, want[static_cast<std::size_t>(half->size())], false);
      comm.barrier();  // the outer groups still work, in another order of use
      const auto again = group->split(0, 0);
      REQUIRE(again->group() == std::string(group->group()) + "#2/0");
      bad += wrong(*again, want[static_cast<std::size_t>(group->size())], true);
    });
    CAPTURE(n);
    CHECK(bad == "");
    CHECK(outside == (n > 2 ? 1 : 0));
  }
}

TEST_CASE("virtual ranks: results and trace do not depend on the order of turns") {
  const auto result = [](int n, Schedule schedule, int work) {
    VirtualRanks world{n, schedule};
    std::vector<Plain> out(static_cast<std::size_t>(n));
    std::vector<int> starts;
    world.run([&](Communicator& comm) {
      starts.push_back(comm.rank());
      Plain x = input(comm.rank(), n, 2);
      const auto part = comm.split(comm.rank() % 2, -comm.rank());
      for (int i = 0; i < work; ++i) {
        comm.all_reduce(ops(x), ops(x), i % 2 ? Reduction::max : Reduction::sum);
        if (comm.rank() % 2 == 0) part->broadcast(ops(x), ops(x), part->size() - 1);
        comm.all_to_all(ops(x), ops(x), 0);
      }
      part->all_gather(ops(x), ops(x), 1);
      out[static_cast<std::size_t>(comm.rank())] = x;
    });
    return std::make_pair(out, starts);
  };
  CHECK(result(3, Schedule::reversed(), 0).second == std::vector<int>{2, 1, 0});
  CHECK(result(8, Schedule::shuffled(1), 0).second != result(8, Schedule::shuffled(2), 0).second);
  CHECK(rc::check("any schedule gives the bits of rank order", [&] {
    const int n = *rc::gen::inRange(1, 10);
    const int work = *rc::gen::inRange(0, 4);
    const auto want = result(n, Schedule::in_order(), work).first;
    RC_ASSERT(result(n, Schedule::reversed(), work).first == want);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    RC_ASSERT(result(n, Schedule::shuffled(seed), work).first == want);
  }));
}

TEST_CASE("virtual ranks: the trace has one record per collective of a group") {
  VirtualRanks world{4};
  unsigned line = 0;
  for (int times = 0; times < 2; ++times)  // the second run starts afresh
    world.run([&](Communicator& comm) {
      Plain x(2, comm.rank() + 1), y(4, 6);
      y.type = DType::bf16;
      line = __LINE__ + 1;
      comm.all_gather(ops(x), ops(x), 1);
      const auto pair = comm.split(comm.rank() / 2, 0);
      if (comm.rank() >= 2) pair->all_reduce(ops(y), ops(y), Reduction::max);
      comm.broadcast(ops(y), ops(y), 3);
    });
  const Trace& t = world.trace();
  REQUIRE(t.size() == 4);
  CHECK(t[0].op == CollectiveOp::all_gather);
  CHECK(t[0].group == "world");
  CHECK(t[0].group_size == 4);
  CHECK(t[0].shape == Shape(2, 1));
  CHECK(t[0].bytes == 16);
  CHECK(t[0].array_bytes == 2 * (1 + 2 + 3 + 4) * 8);
  CHECK(wire_bytes(t[0]) == 120);
  CHECK(t[0].at.line() == line);
  CHECK(where(t[0].at) == "test_virtual_ranks.cpp:" + std::to_string(line));
  CHECK(t[1].op == CollectiveOp::split);
  CHECK(t[1].sequence == 1);
  CHECK(t[2].group == "world/1");
  CHECK(t[2].reduction == Reduction::max);
  CHECK(t[2].dtype == DType::bf16);
  CHECK(t[2].bytes == 48);
  CHECK(t[2].sequence == 0);
  CHECK(wire_bytes(t[2]) == 48);
  CHECK(t[3].sequence == 2);
  CHECK(wire_bytes(t) == 120 + 48 + 48);
}

TEST_CASE(
    "virtual ranks: a place is the same wherever the checkout lies and whatever it is called") {
  for (const char* root :
       {"", "/", "/src/checkout/", "/home/me/tpsim/", "/tpsim/tpsim/", "/include/"}) {
    const std::string layer = std::string(root) + "include/tpsim/layers/linear.hpp";
    const std::string test = std::string(root) + "tests/support/calls.hpp";
    CHECK(where(CallSite(layer.c_str(), 7)) == "tpsim/layers/linear.hpp:7");
    CHECK(where(CallSite(test.c_str(), 34)) == "calls.hpp:34");
  }
  CHECK(where(CallSite("main.cpp", 1)) == "main.cpp:1");
  CHECK(where(CallSite("", 0)) == ":0");
}

TEST_CASE("virtual ranks: wire bytes follow the ring formulas and round up") {
  CHECK(wire_bytes(CollectiveOp::all_reduce, 1024, 4) == 1536);
  CHECK(wire_bytes(CollectiveOp::all_reduce, 10, 3) == 14);  // 13.3
  CHECK(wire_bytes(CollectiveOp::all_gather, 1024, 4) == 768);
  CHECK(wire_bytes(CollectiveOp::reduce_scatter, 10, 3) == 7);  // 6.7
  CHECK(wire_bytes(CollectiveOp::all_to_all, 1024, 8) == 896);
  CHECK(wire_bytes(CollectiveOp::gather, 1024, 8) == 896);
  CHECK(wire_bytes(CollectiveOp::broadcast, 1024, 8) == 1024);
  for (const auto op : {CollectiveOp::all_reduce, CollectiveOp::broadcast})
    CHECK(wire_bytes(op, 1024, 1) == 0);
  CHECK(wire_bytes(CollectiveOp::barrier, 0, 8) == 0);
}

TEST_CASE("virtual ranks: Eigen products fit on the stacks of 512 ranks") {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Matrix a = Matrix::Random(128, 256), b = Matrix::Random(256, 128), want = a * b;
  for (const int n : {1, 2, 3, 8, 64, 512}) {
    VirtualRanks world{n};
    int same = 0;
    world.run([&](Communicator& comm) {
      comm.barrier();  // all stacks are in use at once
      const Matrix c = a * b;
      comm.barrier();
      same += c == want ? 1 : 0;
    });
    CHECK(same == n);
  }
}

TEST_CASE("virtual ranks: a world may run inside a rank of another world") {
  VirtualRanks outer{3};
  std::vector<double> sums;
  outer.run([&](Communicator& comm) {
    VirtualRanks inner{comm.rank() + 1};
    Plain total(1, 1);
    inner.run([&](Communicator& nested) {
      Plain x(1, 1, nested.rank() + 1);
      nested.all_reduce(ops(x), ops(x));
      total = x;
    });
    comm.all_reduce(ops(total), ops(total));
    sums.push_back(total.at(0, 0));
  });
  CHECK(sums == std::vector<double>{10, 10, 10});  // 1 + 3 + 6
}

TEST_CASE("virtual ranks: stacks are kept and reused") {
  VirtualRanks{16}.run([](Communicator& comm) { comm.barrier(); });
  const std::size_t idle = detail::FiberPool::of_thread().idle();
  CHECK(idle >= 16);
  for (int i = 0; i < 100; ++i) VirtualRanks{16}.run([](Communicator& comm) { comm.barrier(); });
  CHECK(detail::FiberPool::of_thread().idle() == idle);
}

TEST_CASE("virtual ranks: a meeting waits for every rank and leaves no trace") {
  for (const Schedule schedule :
       {Schedule::in_order(), Schedule::reversed(), Schedule::shuffled(7)})
    for (const int size : {1, 2, 5, 64}) {
      VirtualRanks world{size, schedule};
      int came = 0, left = 0;
      bool early = false;
      world.run([&](Communicator& comm) {
        for (int round = 1; round <= 3; ++round) {
          ++came;
          VirtualRanks::meet(comm);
          early = early || came < round * size;
          comm.barrier();
        }
        ++left;
      });
      CHECK(!early);
      CHECK(left == size);
      CHECK(world.trace().size() == 3);  // the barriers
    }
}

TEST_CASE("virtual ranks: a rank that returns or throws does not hold up a meeting") {
  VirtualRanks world{4};
  int met = 0;
  world.run([&](Communicator& comm) {
    if (comm.rank() == 2) return;
    VirtualRanks::meet(comm);
    ++met;
  });
  CHECK(met == 3);
  met = 0;
  CHECK_THROWS_AS(world.run([&](Communicator& comm) {
    if (comm.rank() == 2) throw std::runtime_error("no");
    VirtualRanks::meet(comm);
    ++met;
  }),
                  std::runtime_error);
  CHECK(met == 0);
  // One rank waits in a collective for the others, which are at the meeting.
  CHECK_THROWS_AS(world.run([&](Communicator& comm) {
    if (comm.rank() == 2) comm.barrier();
    VirtualRanks::meet(comm);
  }),
                  CollectiveMismatch);
}

}  // namespace virtual_ranks_tests
