// SPDX-License-Identifier: MIT
// Virtual ranks: exceptions, aborts and wrong use.
#include <rapidcheck.h>
#include <string>
#include <tests/support/catch.hpp>
#include <tests/support/plain_ops.hpp>
#include <thread>
#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace virtual_ranks_errors_tests {

using namespace tpsim;
using namespace tpsim::test;

namespace {
const PlainOps ops;
}  // namespace

TEST_CASE("virtual ranks: the first exception comes out unchanged and every stack unwinds") {
  struct Guard {
    int& count;
    explicit Guard(int& c) : count(++c) {}
    ~Guard() { --count; }
  };
  struct Mine {
    int rank, step;
  };
  for (const int n : {1, 2, 3, 8, 64})
    for (const int thrower : {0, n / 2, n - 1})
      for (const int step : {0, 1, 2})
        for (const Schedule s : {Schedule::in_order(), Schedule::reversed()}) {
          VirtualRanks world{n, s};
          int alive = 0, swallowed = 0, ended = 0;
          try {
            world.run([&](Communicator& c) {
              const Guard guard(alive);
              const std::string owned(100, 'x');
              const auto group = c.split(0, -c.rank());
              for (int i = 0; i < 3; ++i) {
                if (c.rank() == thrower && i == step) throw Mine{c.rank(), i};
                try {
                  group->barrier();
                } catch (...) {
                  ++swallowed;  // the next collective throws again
                }
              }
              group->barrier();
              ++ended;
            });
            FAIL("the exception was lost");
          } catch (const Mine& e) {
            CHECK(e.rank == thrower);
            CHECK(e.step == step);
          }
          CHECK(world.failed_rank() == thrower);
          CHECK(alive == 0);
          CHECK(ended == 0);
          if (step > 0) CHECK(swallowed >= n - 1);  // by then all others wait in the barrier
        }
}

TEST_CASE("virtual ranks: RapidCheck discards and fails cases from inside a rank") {
  int ran = 0, discarded = 0;
  VirtualRanks world{4};
  CHECK(rc::check("an odd case is discarded", [&] {
    const int k = *rc::gen::inRange(0, 100);
    world.run([&](Communicator& c) {
      c.barrier();
      if (c.rank() == k % 4 && k % 2 == 1) ++discarded;
      if (c.rank() == k % 4) RC_PRE(k % 2 == 0);
      c.barrier();
      if (c.rank() == 3) RC_ASSERT(k % 2 == 0);
    });
    ++ran;
  }));
  CHECK(ran == 100);
  CHECK(discarded > 0);
  CHECK_THROWS_AS(world.run([](Communicator& c) {
    if (c.rank() == 2) RC_ASSERT(c.size() == 3);
    c.barrier();
  }),
                  rc::detail::CaseResult);
  CHECK(world.failed_rank() == 2);
}

TEST_CASE("virtual ranks: a collective refuses to run while an exception is handled") {
  VirtualRanks world{2};
  const auto in_handler = [](Communicator& c) {
    try {
      throw 1;
    } catch (int) {
      c.barrier();
    }
  };
  CHECK_THROWS_AS(world.run(in_handler), std::logic_error);
  CHECK(world.failed_rank() == 0);

  struct InDestructor {
    Communicator& c;
    ~InDestructor() { c.barrier(); }
  };
  // The original exception comes out; where it is caught, the refusal follows.
  CHECK_THROWS_AS(world.run([](Communicator& c) {
    const InDestructor last{c};
    throw 1;
  }),
                  int);
  int passed = 0;
  CHECK_THROWS_AS(world.run([&](Communicator& c) {
    try {
      const InDestructor last{c};
      throw 1;
    } catch (int) {
    }
    ++passed;
  }),
                  std::logic_error);
  CHECK(passed == 1);
  // A destructor during an abort neither ends the program nor waits.
  CHECK_THROWS_AS(world.run([](Communicator& c) {
    if (c.rank() == 1) throw 1.0;
    const InDestructor last{c};
    Plain x(1, 1);
    c.all_reduce(ops(x), ops(x));
  }),
                  double);

  // A handler around the whole world does not count: its ranks handle nothing.
  try {
    throw std::runtime_error("outer");
  } catch (const std::runtime_error&) {
    world.run([](Communicator& c) {
      CHECK(std::current_exception() == nullptr);
      c.barrier();
      try {
        throw c.rank();
      } catch (int r) {
        CHECK(r == c.rank());
      }
      c.barrier();
    });
    try {
      throw;
    } catch (const std::exception& e) {
      CHECK(std::string(e.what()) == "outer");
    }
  }
}

TEST_CASE("virtual ranks: wrong use is refused in words") {
  CHECK_THROWS_AS(VirtualRanks{0}, LayoutError);
  CHECK_THROWS_AS(VirtualRanks{-1}, LayoutError);
  CHECK_THROWS_AS(VirtualRanks{1000000000}, LayoutError);
  VirtualRanks world{2};
  std::unique_ptr<Communicator> kept;
  Communicator* first = nullptr;
  CHECK_THROWS_AS(world.run([&](Communicator& c) {
    if (c.rank() == 0) first = &c;
    kept = c.split(0, 0);
    if (c.rank() == 1) first->barrier();  // the communicator of another rank
    c.barrier();
  }),
                  std::logic_error);
  CHECK(world.failed_rank() == 1);
  CHECK_THROWS_AS(kept->barrier(), std::logic_error);
  CHECK_THROWS_AS(world.run([&](Communicator&) { kept->barrier(); }), std::logic_error);
  CHECK_THROWS_AS(world.run([&](Communicator&) { world.run([](Communicator&) {}); }),
                  std::logic_error);
  CHECK_THROWS_AS(world.run([&](Communicator& c) { c.all_reduce({}, {}); }), std::invalid_argument);
  int refused = 0;
  world.run([&](Communicator& c) {
    std::thread([&] {
      try {
        c.barrier();
      } catch (const std::logic_error&) {
        ++refused;
      }
    }).join();
    VirtualRanks inner{1};  // an inner rank may not wait for the outer world
    try {
      inner.run([&](Communicator&) { c.barrier(); });
    } catch (const std::logic_error&) {
      ++refused;
    }
  });
  CHECK(refused == 4);
}

TEST_CASE("virtual ranks: an operation that throws half-way ends the run") {
  class Broken final : public PlainOps {
    void assign(const void*, void*) const override { throw std::bad_alloc(); }
  } const broken;
  VirtualRanks world{3};
  int went_on = 0;
  CHECK_THROWS_AS(world.run([&](Communicator& c) {
    Plain x(1, 1);
    try {
      c.all_reduce(broken(x), broken(x));
    } catch (const std::bad_alloc&) {
    }
    c.barrier();
    ++went_on;
  }),
                  std::bad_alloc);
  CHECK(went_on == 0);
  CHECK(world.failed_rank() == 2);
}

TEST_CASE("fixed rank: it knows its place and refuses every collective") {
  FixedRank rank(2, 4);
  CHECK(rank.rank() == 2);
  CHECK(rank.size() == 4);
  CHECK_THROWS_AS(FixedRank(4, 4), LayoutError);
  CHECK_THROWS_AS(FixedRank(-1, 4), LayoutError);
  CHECK_THROWS_AS(FixedRank(0, 0), LayoutError);
  CHECK_THROWS_AS(rank.split(0, 0), std::logic_error);
  try {
    rank.barrier();
    FAIL("a fixed rank took part in a barrier");
  } catch (const std::logic_error& e) {
    CHECK(std::string(e.what()).find("barrier: rank 2 of 4 is fixed, for loading alone") == 0);
  }
}

TEST_CASE("virtual ranks: threads may run worlds of their own at the same time") {
  std::vector<double> sums(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < sums.size(); ++i)
    threads.emplace_back([&sums, i] {
      for (int again = 0; again < 20; ++again) try {
          VirtualRanks{8}.run([&](Communicator& c) {
            Plain x(1, 1, c.rank() + static_cast<double>(i));
            c.all_reduce(ops(x), ops(x));
            sums[i] = x.at(0, 0);
            if (c.rank() == again % 8) throw again;
          });
        } catch (int) {
        }
    });
  for (std::thread& t : threads) t.join();
  CHECK(sums == std::vector<double>{28, 36, 44, 52});
}

}  // namespace virtual_ranks_errors_tests
