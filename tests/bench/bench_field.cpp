// SPDX-License-Identifier: MIT
// Products per second of the exact backend, on one thread.
#include <benchmark/benchmark.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <tpsim/backend/field/field_backend.hpp>

namespace tpsim {
namespace {

constexpr Index out_rows = 1024, in_cols = 4096;

void one_thread() {
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
}

void products(benchmark::State& state, FieldBackend& b, const FieldParam& w) {
  one_thread();
  const FieldTensor x = b.input("x", state.range(0), in_cols);
  for (auto _ : state) benchmark::DoNotOptimize(b.linear(x, w));
  state.counters["MAC/s"] =
      benchmark::Counter(static_cast<double>(state.range(0) * out_rows * in_cols),
                         benchmark::Counter::kIsIterationInvariantRate);
}

FieldParam generated(FieldBackend& b) {
  const Shape shape(out_rows, in_cols);
  const auto logical = std::make_shared<LogicalTensor>("w", shape);
  const FullTensor full(std::make_shared<StoredTensor>(
      StoredTensor{"w", shape, {{0, out_rows, logical, 0, 1}}, nullptr}));
  FieldParam w = b.empty("weight", shape);
  b.copy(w, 0, 0, full, 0, out_rows);
  return w;
}

void field_linear_generated(benchmark::State& state) {
  FieldBackend b(std::make_shared<FieldContext>(), 0);
  products(state, b, generated(b));
}
BENCHMARK(field_linear_generated)->Arg(1)->Arg(4)->Arg(16);

void field_linear_stored(benchmark::State& state) {
  FieldBackend b(std::make_shared<FieldContext>(), 0);
  const FieldParam w = generated(b);
  products(state, b, b.stored(w.shape, b.read(w).values));
}
BENCHMARK(field_linear_stored)->Arg(1)->Arg(4)->Arg(16);

void field_silu(benchmark::State& state) {
  one_thread();
  FieldBackend b(std::make_shared<FieldContext>(), 0);
  const FieldTensor x = b.input("x", 4, in_cols);
  for (auto _ : state) benchmark::DoNotOptimize(b.silu(x));
  state.SetItemsProcessed(state.iterations() * 4 * in_cols);
}
BENCHMARK(field_silu);

}  // namespace
}  // namespace tpsim
