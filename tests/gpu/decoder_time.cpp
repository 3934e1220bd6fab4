// SPDX-License-Identifier: MIT
// A decoder layer of llama-3-8b's sizes in bf16, unsharded, timed on the GPU: the whole layer, and
// the products of its linear layers alone. usage: tpsim_decoder_time [REPEATS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/comm/fixed_rank.hpp>
#include <tpsim/layers/decoder_layer.hpp>
#include <tpsim/layers/load.hpp>

#include "sim/cuda/timer.hpp"

namespace tpsim {
namespace {

constexpr Index hidden = 4096, intermediate = 14336, heads = 32, kv_heads = 8, head_dim = 128;

DecoderShape shape() {
  DecoderShape s;
  s.attention.qkv.hidden = hidden, s.attention.qkv.head_dim = head_dim;
  s.attention.qkv.heads = heads, s.attention.qkv.kv_heads = kv_heads;
  s.attention.rope.emplace();
  s.attention.rope->rotary_dim = head_dim, s.attention.rope->theta = 500000;
  s.intermediate = intermediate;
  return s;
}

FullTensor numbered(const std::string& name, Shape s) {
  const auto meaning = std::make_shared<const LogicalTensor>(name, s);
  StoredTensor stored{name, s, {{0, s.rows(), meaning, 0, 1}}, nullptr};
  return FullTensor(std::make_shared<const StoredTensor>(std::move(stored)));
}

/// The median of `repeats` runs after two that count nothing, in milliseconds.
double median(const cuda::Device& device, int repeats, const std::function<void()>& f) {
  cuda::Timer timer(device);
  std::vector<double> times;
  for (int i = -2; i < repeats; ++i) {
    timer.start();
    f();
    const double t = timer.stop();
    if (i >= 0) times.push_back(t);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void time_layer(cuda::Device device, Index tokens, int repeats) {
  CudaBackend b(device, 0, DType::bf16);
  FixedRank alone(0, 1);
  DecoderLayer<CudaBackend> layer(b, alone, shape());
  std::vector<std::pair<Shape, const DeviceParam*>> products;
  layer.for_each_layer([&](const std::string& prefix, auto& part) {
    for_each_param(prefix, part, [&](const std::string& name, DeviceParam& w) {
      b.copy(w, 0, 0, numbered(name, w.shape()), 0, w.shape().rows());
      if (w.shape().rank() == 2) products.emplace_back(w.shape(), &w);
    });
  });
  const auto input = [&](Index columns) {
    std::vector<float> x(static_cast<std::size_t>(tokens * columns));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251) / 128 - 1;
    return b.from_host(Shape(tokens, columns), x);
  };
  const DeviceTensor x = input(hidden);
  const double whole = median(device, repeats, [&] {
    KvCache<CudaBackend> cache;
    Stream<DeviceTensor> stream{b.slice(x, 0, 0, tokens)};
    (void)layer.forward(std::move(stream), Batch::prefill({tokens}), cache);
  });
  std::vector<DeviceTensor> inputs;
  for (const auto& [s, w] : products) inputs.push_back(input(s.cols()));
  const double alone_ms = median(device, repeats, [&] {
    for (std::size_t i = 0; i < products.size(); ++i)
      (void)b.linear(inputs[i], *products[i].second);
  });
  double flop = 0, bytes = 0;
  for (const auto& [s, w] : products) {
    flop += 2.0 * static_cast<double>(tokens) * static_cast<double>(s.size());
    bytes += 2.0 * static_cast<double>(s.size());
  }
  std::printf(
      "%6lld tokens  layer %8.3f ms  products %8.3f ms (%.0f TFLOP/s, %.2f TB/s of weights)"
      "  layer / products %.2f\n",
      static_cast<long long>(tokens), whole, alone_ms, flop / alone_ms * 1e-9,
      bytes / alone_ms * 1e-9, whole / alone_ms);
}

}  // namespace
}  // namespace tpsim

int main(int argc, char** argv) {
  using namespace tpsim;
  try {
    std::printf("%s\n", cuda::Device::versions().c_str());
    if (cuda::Device::count() == 0) {
      std::printf("no CUDA device: %s\n", cuda::Device::why_none().c_str());
      return 2;
    }
    cuda::Device device;
    std::printf("%s\ndecoder layer of llama-3-8b, bf16, tp 1\n", device.name().c_str());
    const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
    for (const Index tokens : {16, 2048}) time_layer(device, tokens, repeats);
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
  return 0;
}
