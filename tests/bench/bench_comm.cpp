// SPDX-License-Identifier: MIT
// What virtual ranks cost: a warm world, and collectives in it.
#include <benchmark/benchmark.h>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/comm/virtual_ranks.hpp>

namespace {

using namespace tpsim;
using Numeric = EigenBackend<float>;

void warm_world(benchmark::State& state) {
  VirtualRanks world{static_cast<int>(state.range(0))};
  for (auto _ : state) world.run([](Communicator& comm) { benchmark::DoNotOptimize(comm.rank()); });
}
BENCHMARK(warm_world)->Arg(8)->Arg(64)->Arg(512)->Unit(benchmark::kMicrosecond);

// Time of one collective among all ranks, 1000 in a run.
template <class Collective>
void collective(benchmark::State& state, Collective call) {
  constexpr int repeat = 1000;
  VirtualRanks world{static_cast<int>(state.range(0))};
  for (auto _ : state)
    world.run([&](Communicator& comm) {
      Numeric b(comm.rank());
      auto x = b.activation("x", Shape(1, 64));
      for (int i = 0; i < repeat; ++i) call(b, comm, x);
    });
  state.counters["per_collective"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * repeat,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
void barrier(benchmark::State& state) {
  collective(state, [](Numeric&, Communicator& comm, auto&) { comm.barrier(); });
}
void all_reduce_64_floats(benchmark::State& state) {
  collective(state, [](Numeric& b, Communicator& comm, auto& x) {
    benchmark::DoNotOptimize(all_reduce(b, comm, x));
  });
}
void all_gather_64_floats(benchmark::State& state) {
  collective(state, [](Numeric& b, Communicator& comm, auto& x) {
    benchmark::DoNotOptimize(all_gather(b, comm, x));
  });
}
BENCHMARK(barrier)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_reduce_64_floats)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_gather_64_floats)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
