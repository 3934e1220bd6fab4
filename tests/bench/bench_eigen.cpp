// SPDX-License-Identifier: MIT
// The numeric backend at the shapes of llama-3-8b: products against Eigen's own, and generation.
#include <benchmark/benchmark.h>

#include <tpsim/backend/eigen/eigen_backend.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace {

using namespace tpsim;

constexpr Index kOut = 4096, kIn = 14336;  // down_proj

FullTensor unsaved(const char* name, Shape shape) {
  const auto meaning = std::make_shared<const LogicalTensor>(name, shape);
  StoredTensor stored{name, shape, {{0, shape.rows(), meaning, 0, 1}}, nullptr};
  return FullTensor(std::make_shared<const StoredTensor>(std::move(stored)));
}

template <class Real>
eigen::Param weight(const EigenBackend<Real>& b) {
  eigen::Param w = b.empty("down_proj.weight", {kOut, kIn});
  b.copy(w, 0, 0, unsaved("down_proj.weight", {kOut, kIn}), 0, kOut);
  eigen::store(w);  // the product alone, without making the weights
  return w;
}

void set_threads(int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
  Eigen::setNbThreads(threads);
}

void count_macs(benchmark::State& state, Index tokens) {
  state.counters["GMAC/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(tokens * kOut * kIn) * 1e-9,
      benchmark::Counter::kIsRate);
}

void tiled(benchmark::State& state, DType rule, bool bounds) {
  const Index tokens = state.range(0);
  set_threads(static_cast<int>(state.range(1)));
  const EigenBackend<float> b(0, rule, {.track_bounds = bounds});
  const auto x = b.activation("x", {tokens, kIn});
  const auto w = weight(b);
  for (auto _ : state) benchmark::DoNotOptimize(b.linear(x, w).value.data());
  count_macs(state, tokens);
}
void tiled_f32(benchmark::State& state) { tiled(state, DType::f32, false); }
void tiled_f32_with_bounds(benchmark::State& state) { tiled(state, DType::f32, true); }
void tiled_bf16(benchmark::State& state) { tiled(state, DType::bf16, false); }
void tiled_f16(benchmark::State& state) { tiled(state, DType::f16, false); }

void eigen_own_f32(benchmark::State& state) {
  const Index tokens = state.range(0);
  set_threads(static_cast<int>(state.range(1)));
  const EigenBackend<float> b;
  const auto x = b.activation("x", {tokens, kIn}).value;
  const eigen::Param param = weight(b);
  const auto& w = std::get<eigen::Matrix<float>>(param.storage);
  eigen::Matrix<float> y(tokens, kOut);
  for (auto _ : state) {
    if (tokens == 1)
      y.row(0).transpose().noalias() = w * x.row(0).transpose();  // Eigen's matrix-vector kernel
    else
      y.noalias() = x * w.transpose();
    benchmark::DoNotOptimize(y.data());
  }
  count_macs(state, tokens);
}

void reference_f64(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(1)));
  const EigenBackend<double> b(0, DType::bf16);
  const auto x = b.activation("x", {state.range(0), kIn});
  const auto w = weight(b);
  for (auto _ : state) benchmark::DoNotOptimize(b.linear(x, w).value.data());
  count_macs(state, state.range(0));
}

void generate(benchmark::State& state) {
  set_threads(static_cast<int>(state.range(0)));
  const EigenBackend<float> b(0, DType::f32,
                              {.values = {.kind = static_cast<eigen::ValueKind>(state.range(1))}});
  eigen::Param w = b.empty("down_proj.weight", {kOut, kIn});
  const FullTensor full = unsaved("down_proj.weight", {kOut, kIn});
  for (auto _ : state) b.copy(w, 0, 0, full, 0, kOut);
  state.counters["G/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(kOut * kIn) * 1e-9,
      benchmark::Counter::kIsRate);
}

void at_llama_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{1, 16, 64}, {1, 2}})->ArgNames({"tokens", "threads"})->UseRealTime();
  b->Unit(benchmark::kMillisecond);
}
BENCHMARK(tiled_f32)->Apply(at_llama_shapes);
BENCHMARK(eigen_own_f32)->Apply(at_llama_shapes);
BENCHMARK(tiled_f32_with_bounds)->Apply(at_llama_shapes);
BENCHMARK(tiled_bf16)->Apply(at_llama_shapes);
BENCHMARK(tiled_f16)->Apply(at_llama_shapes);
BENCHMARK(reference_f64)->Apply(at_llama_shapes);
BENCHMARK(generate)
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->ArgNames({"threads", "kind"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
