// SPDX-License-Identifier: MIT
// What cutting costs: the sharded forward over the unsharded one, and what the readings take.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include <tpsim/verify/linear_subjects.hpp>
#include <tpsim/verify/verify.hpp>

namespace {

using namespace tpsim;
using Clock = std::chrono::steady_clock;
using Numeric = EigenBackend<float>;

LayerSpec llama(const std::string& layer, int tp, Index hidden, Index intermediate, Index heads) {
  LayerSpec s;
  s.layer = layer;
  s.tp = tp;
  s.qkv = {hidden, 128, heads, 8, 0};
  s.intermediate = intermediate;
  s.parts = gate_up(s.intermediate);
  s.in = hidden;
  s.out = hidden;
  return s;
}

// llama-3-8b MLP. Both forwards run in turn in one loop and the fastest of each are compared: the
// sharded one has tp times as many parallel loops, each of which waits for a thread that other work
// on the machine holds up.
void sharded_mlp(benchmark::State& state) {
  LayerSpec spec = llama("mlp", static_cast<int>(state.range(0)), 4096, 14336, 32);
  spec.tokens = state.range(1);
  const auto subject = make_subject(spec);
  Numeric whole;
  FullParams<Numeric> tensors = full_params(whole, subject->tensors);
  for (auto& [name, param] : tensors) eigen::store(param);  // as an engine holds its weights
  const auto x = whole.activation("x", Shape(spec.tokens, 4096));
  double sharded = 1e9, unsharded = 1e9;  // seconds
  bool more = true;
  VirtualRanks world{spec.tp};
  world.run([&](Communicator& comm) {
    Numeric b(comm.rank());
    const auto module = subject->make(b, comm);
    for (const DiskTensor& t : subject->tensors) module->load(t);
    for (const auto& [name, param] : module->params()) eigen::store(*param);
    Clock::time_point start;
    for (;;) {
      if (comm.rank() == 0) {
        more = state.KeepRunning();
        if (more) {
          start = Clock::now();
          benchmark::DoNotOptimize(GatedMLP<Numeric>::full(whole, x, tensors));
          unsharded =
              std::min(unsharded, std::chrono::duration<double>(Clock::now() - start).count());
          start = Clock::now();
        }
      }
      comm.barrier();
      if (!more) return;
      benchmark::DoNotOptimize(module->forward(x));
      comm.barrier();
      if (comm.rank() == 0) {
        const double took = std::chrono::duration<double>(Clock::now() - start).count();
        sharded = std::min(sharded, took);
        state.SetIterationTime(took);
      }
    }
  });
  state.counters["over_unsharded"] = sharded / unsharded;
}
BENCHMARK(sharded_mlp)
    ->ArgNames({"tp", "tokens"})
    ->ArgsProduct({{1, 2, 4, 8}, {1, 16, 64}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(2);

// llama-3.1-405b qkv, o, gate_up and down, statically, at every power of two to 64: all checks.
void static_405b(benchmark::State& state) {
  Index compared = 0;
  for (auto _ : state)
    for (int tp = 1; tp <= 64; tp *= 2) {
      LayerSpec o = llama("row", tp, 16384, 53248, 128), down = o;
      down.in = 53248;
      for (const LayerSpec& spec :
           {llama("qkv", tp, 16384, 53248, 128), o, llama("merged", tp, 16384, 53248, 128), down})
        for (const CheckResult& c : read_statically(*make_subject(spec)).checks) {
          compared += c.compared;
          if (c.result == Outcome::fail) state.SkipWithError("a check failed");
        }
    }
  benchmark::DoNotOptimize(compared);
}
BENCHMARK(static_405b)->Unit(benchmark::kMillisecond);

// The exact reading of llama-3-8b qkv, o, gate_up and down at full size, tp 8, 4 tokens: every
// weight is streamed, for the ranks and for full(). The peak is that of the whole process.
void exact_8b(benchmark::State& state) {
  LayerSpec o = llama("row", 8, 4096, 14336, 32), down = o;
  down.in = 14336;
  for (auto _ : state)
    for (LayerSpec spec :
         {llama("qkv", 8, 4096, 14336, 32), o, llama("merged", 8, 4096, 14336, 32), down}) {
      spec.tokens = 4;
      const auto subject = make_subject(spec);
      for (const CheckResult& c : read_exactly(*subject, read_statically(*subject)))
        if (c.result == Outcome::fail) state.SkipWithError("a check failed");
    }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(exact_8b)->Unit(benchmark::kMillisecond);

// The exact reading of one small layer: what a property or an interactive run pays for a tiny
// shape.
void exact_small(benchmark::State& state) {
  LayerSpec spec = llama("mlp", 4, 32, 24, 8);
  const auto subject = make_subject(spec);
  const StaticReading statics = read_statically(*subject);
  for (auto _ : state) benchmark::DoNotOptimize(read_exactly(*subject, statics));
}
BENCHMARK(exact_small)->Unit(benchmark::kMicrosecond);

}  // namespace
