// SPDX-License-Identifier: MIT
// MPI ranks: mismatched collectives, early returns, exceptions: found as on virtual ranks, in every
// process, and nothing hangs.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <tests/mpi/both_worlds.hpp>
#include <tests/support/mismatched_calls.hpp>
#include <thread>
#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/symbolic/symbolic_backend.hpp>

using namespace tpsim;
using namespace tpsim::test;

namespace {

bool starts(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("mpi ranks: calls that do not match are the findings of virtual ranks") {
  std::vector<Plain> t(static_cast<std::size_t>(job_size()));
  for (const auto& [difference, call] : mismatched_calls(t)) {
    const std::string end = same_end([&](Communicator& c) {
      c.barrier();
      call(c, c.rank() == 1);
      FAIL("a mismatched collective returned");
    });
    CAPTURE(end);
    CHECK(starts(end, "mismatch: "));
    CHECK(contains(end, "collectives  group world #1: "));
    CHECK(contains(end, difference));
    CHECK(contains(end, "in world #1 at mismatched_calls.hpp:"));
  }
}

TEST_CASE("mpi ranks: a mismatch inside a part of the world is found") {
  const int n = job_size();
  const std::string end = same_end([&](Communicator& c) {
    const auto last_two = c.split(c.rank() + 2 >= n ? 0 : -1, 0);
    if (last_two) {
      Plain x(1, 2 + (c.rank() + 1 == n ? 1 : 0));
      last_two->all_reduce(ops(x), ops(x));
    }
    c.barrier();
  });
  CHECK(contains(end, "group world/0 #0: different shapes"));
  CHECK(contains(end, "group world #1: ") == (n > 2));
}

TEST_CASE("mpi ranks: a rank that returns while others wait is a finding") {
  const int n = job_size();
  for (const int early : {0, n - 1}) {
    const std::string end = same_end([&](Communicator& c) {
      c.barrier();
      if (c.rank() != early) c.barrier();
    });
    CHECK(contains(end, "rank " + std::to_string(early) + ": returned after 1 collective"));
  }
  // Before it has called anything, and in a part of which the others wait elsewhere.
  CHECK(contains(same_end([](Communicator& c) {
                   if (c.rank() == 0) c.barrier();
                 }),
                 "returned after 0 collectives"));
  CHECK(contains(same_end([&](Communicator& c) {
                   const auto part = c.split(c.rank() == 0 ? 1 : 0, 0);
                   if (c.rank() + 1 == n) return;
                   if (c.rank() > 0) part->barrier();
                   c.barrier();
                 }),
                 "returned after 1 collective"));
}

TEST_CASE("mpi ranks: groups that wait for each other are a finding") {
  const std::string end = same_end([](Communicator& c) {
    const auto part = c.split(c.rank() / 2, 0);
    if (c.rank() == 1) c.barrier();
    part->barrier();
    c.barrier();
  });
  CHECK(contains(end, "group world/0 #0: 1 of 2 ranks wait; rank 1 waits in world"));
}

TEST_CASE("mpi ranks: many collectives in groups that overlap end in the virtual ranks' trace") {
  CHECK(same_end([](Communicator& c) {
          const auto odd = c.split(c.rank() % 2, -c.rank());
          const auto low = c.split(c.rank() < 2 ? 0 : 1, 0);
          Plain x(2, 2, c.rank());
          for (int i = 0; i < 20; ++i) {
            odd->all_reduce(ops(x), ops(x));
            if (i % 3 == 0) low->broadcast(ops(x), ops(x), 0);
            if (i % 7 == 0) c.barrier();
          }
        }) == "returned");
}

TEST_CASE("mpi ranks: what a rank throws ends the run in every process") {
  const int n = job_size();
  for (const int thrower : {0, n - 1})
    for (const int step : {0, 2}) {
      int unwound = 0, ended = 0;
      struct Guard {
        int& count;
        ~Guard() { ++count; }
      };
      const auto program = [&](auto thrown) {
        return [&, thrown](Communicator& c) {
          const Guard guard{unwound};
          const auto part = c.split(0, -c.rank());
          for (int i = 0; i < 3; ++i) {
            if (c.rank() == thrower && i == step) throw thrown;
            try {
              part->barrier();
            } catch (...) {  // the next one throws again
            }
          }
          part->barrier();
          ++ended;
        };
      };
      CHECK(contains(same_end(program(std::runtime_error("no more"))), "no more on rank"));
      CHECK(starts(same_end(program(LayoutError("it cannot be", {{"divide", "3 by 2"}}, "try 4"))),
                   "layout: it cannot be"));
      CHECK(ended == 0);
    }
}

TEST_CASE("mpi ranks: of several that throw, the first is the virtual ranks' first") {
  same_end([](Communicator& c) { throw std::runtime_error("rank " + std::to_string(c.rank())); });
  same_end([](Communicator& c) {
    c.barrier();
    throw LayoutError("rank " + std::to_string(c.rank()));
  });
  same_end([](Communicator& c) {
    if (c.rank() == 0) return;
    throw LayoutError("rank " + std::to_string(c.rank()));
  });
}

TEST_CASE("mpi ranks: the thrower gets its own exception back, unchanged") {
  struct Mine {
    int rank;
  };
  MpiRanks world;
  const int thrower = world.size() - 1;
  try {
    world.run([&](Communicator& c) {
      c.barrier();
      if (c.rank() == thrower) throw Mine{c.rank()};
      c.barrier();
    });
    FAIL("the exception was lost");
  } catch (const Mine& e) {
    CHECK(e.rank == world.rank());
  } catch (const RemoteError& e) {
    CHECK(world.rank() != thrower);
    CHECK(e.rank() == thrower);
  }
}

TEST_CASE("mpi ranks: an operation that throws half-way ends the run in every process") {
  class Broken final : public PlainOps {
   public:
    void reduce(Reduction, std::span<const void* const>, void*) const override {
      throw std::runtime_error("cannot add");
    }
  } const broken;
  class Unpackable final : public PlainOps {
   public:
    [[nodiscard]] Bytes pack(const void* t) const override {
      if (static_cast<const Plain*>(t)->values.at(0) > 0) throw std::runtime_error("cannot pack");
      return PlainOps::pack(t);
    }
  } const unpackable;
  for (const bool fast : {false, true})
    for (const PlainOps* bad :
         {static_cast<const PlainOps*>(&broken), static_cast<const PlainOps*>(&unpackable)}) {
      MpiRanks world({true, fast});
      const int last = world.size() - 1;
      int went_on = 0;
      std::string text;
      try {
        world.run([&](Communicator& c) {
          Plain x(1, 1, c.rank() == last ? 1 : 0);
          bad == &broken ? c.all_reduce((*bad)(x), (*bad)(x))
                         : c.all_gather((*bad)(x), (*bad)(x), 0);
          ++went_on;
        });
      } catch (const std::runtime_error& e) {
        text = e.what();
      }
      CHECK(contains(text, bad == &broken ? "cannot add" : "cannot pack"));
      CHECK(went_on == 0);
      Plain x(1, 1, 1);  // no message of that run is left over
      world.run([&](Communicator& c) { c.all_reduce(ops(x), ops(x)); });
      CHECK(x.at(0, 0) == world.size());
    }
}

TEST_CASE("mpi ranks: a collective refuses to run while an exception is handled") {
  const std::string end = same_end([](Communicator& c) {
    try {
      throw 1;
    } catch (int) {
      c.barrier();
    }
  });
  CHECK(contains(end, "leave the handler first"));
  struct InDestructor {
    Communicator& c;
    ~InDestructor() { c.barrier(); }
  };
  CHECK(contains(same_end([](Communicator& c) {
                   try {
                     const InDestructor last{c};
                     throw 1;
                   } catch (int) {
                   }
                 }),
                 "leave the handler first"));
}

TEST_CASE("mpi ranks: a meeting waits for every rank that has not returned, and leaves no trace") {
  MpiRanks world;
  const int n = world.size();
  int met = 0;
  world.run([&](Communicator& c) {
    for (int i = 0; i < 3; ++i) {
      const Met all = ProcessRanks::meet(c, {i < 1 || c.rank() > 0, 10 * i + c.rank()});
      CHECK(all.value == 10 * i);  // rank 0's
      CHECK(all.well == (i < 1));
      ++met;
      c.barrier();
    }
    if (c.rank() + 1 == n) return;
    ProcessRanks::meet(c), ++met;
  });
  CHECK(met == (world.rank() + 1 == n ? 3 : 4));
  CHECK(world.trace().size() == 3);
  CHECK_THROWS_AS(world.run([&](Communicator& c) {
    if (c.rank() == 0) c.barrier();
    ProcessRanks::meet(c);
  }),
                  CollectiveMismatch);
}

TEST_CASE("mpi ranks: wrong use is refused in words") {
  MpiRanks world;
  std::unique_ptr<Communicator> kept;
  world.run([&](Communicator& c) {
    kept = c.split(0, 0);
    CHECK_THROWS_AS(world.run([](Communicator&) {}), std::logic_error);
    int refused = 0;
    std::thread([&] {
      try {
        c.barrier();
      } catch (const std::logic_error&) {
        ++refused;
      }
    }).join();
    CHECK(refused == 1);
  });
  CHECK_THROWS_AS(kept->barrier(), std::logic_error);
  // Symbols are numbers of a table that one process has.
  std::string text;
  try {
    world.run([](Communicator& c) {
      SymbolicContext context;
      SymbolicBackend b(context, c.rank());
      const BackendOps<SymbolicBackend> symbols(b);
      SymbolicTensor x;
      CHECK(!symbols.leaves_process());
      c.all_reduce(symbols.buffer(x), symbols.buffer(x));
    });
  } catch (const std::exception& e) {
    text = e.what();
  }
  CHECK(contains(text, "cannot leave their process: this backend runs on virtual ranks alone"));
}

TEST_CASE("mpi ranks: bytes are brought to rank 0 and shared from there") {
  MpiRanks world;
  const std::string mine(static_cast<std::size_t>(world.rank()) * 70000, 'a');
  for (int again = 0; again < 2; ++again) {
    const auto all = world.bring(std::as_bytes(std::span(mine)));
    REQUIRE(all.size() == (world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0));
    for (std::size_t r = 0; r < all.size(); ++r) CHECK(all[r].size() == r * 70000);
    Bytes given(world.rank() == 0 ? 100000 : 0, std::byte{9});
    CHECK(world.share(std::move(given)) == Bytes(100000, std::byte{9}));
  }
}

// Not for all: each ends the job. tests/mpi/run_mpi.cmake sees how.
namespace {
void die(void (*how)()) {
  MpiRanks world;
  world.run([&](Communicator& c) {
    c.barrier();
    if (c.rank() + 1 == c.size()) {
      std::fprintf(stderr, "dies at %lld\n", static_cast<long long>(std::time(nullptr)));
      how();
    }
    c.barrier();
  });
}
}  // namespace
TEST_CASE("mpi ranks: a rank is killed", "[.kill]") {
  die([] { (void)raise(SIGKILL); });
}
TEST_CASE("mpi ranks: a rank calls abort", "[.abort]") {
  die([] { (void)std::signal(SIGABRT, SIG_DFL), std::abort(); });
}
TEST_CASE("mpi ranks: a rank calls _exit", "[._exit]") {
  die([] { _exit(0); });
}
TEST_CASE("mpi ranks: a rank calls exit", "[.exit]") {
  die([] { std::exit(0); });
}
