// SPDX-License-Identifier: MIT
// Kernel bodies along rows, products and attention on the CPU: within their bound of f64, exact on
// integers, for every type and number of lanes.
#include <cmath>
#include <numeric>

#include <tests/support/cuda_fixture.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using test_eigen::full;
using test_eigen::load;

EigenBackend<double> reference(const EigenBackend<float>& host) {
  return EigenBackend<double>(0, host.rule(), host.options());
}

TEST_CASE("cuda: sums along rows and the norms made of them are close to f64") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const EigenBackend<double> exact = reference(host);
    for (const auto& [shape, group] : std::vector<std::pair<Shape, Index>>{{{1, 1}, 1},
                                                                           {{5, 7}, 7},
                                                                           {{3, 60}, 20},
                                                                           {{4, 5}, 9},
                                                                           {{7, 1500}, 1500},
                                                                           {{0, 8}, 8}}) {
      INFO(shape.str());
      const auto x = device.activation("x", shape);
      const auto e = exact.activation("x", shape);
      const auto sums = device.column_sums(x, group), squares = device.square_sums(x, group);
      const auto exact_sums = exact.column_sums(e, group),
                 exact_squares = exact.square_sums(e, group);
      close(sums, exact_sums);
      close(squares, exact_squares);
      CHECK(sums.wide == (device.rule() != DType::f32));
      close(device.centered(x, sums, group), exact.centered(e, exact_sums, group));
      close(device.rms_normalized(x, squares, group, 1e-6),
            exact.rms_normalized(e, exact_squares, group, 1e-6));
      // On the same statistics as the CPU: the same bits.
      const auto host_x = host.activation("x", shape);
      eigen::Tensor<float> given;
      given.value = squares.value, given.wide = squares.wide;
      same(device.rms_normalized(x, squares, group, 1e-6),
           host.rms_normalized(host_x, given, group, 1e-6));
    }
  });
}

TEST_CASE("cuda: heads turn as on the CPU to the bit") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const std::vector<Index> positions{0, 3, 1, 70000};
    for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved})
      for (const Index rotary : {2, 6, 10})
        for (const RopeScaling scaling :
             {RopeScaling::none, RopeScaling::linear, RopeScaling::llama3, RopeScaling::yarn}) {
          RopeSpec spec;
          spec.rotary_dim = rotary, spec.style = style, spec.scaling = scaling;
          if (scaling != RopeScaling::none) spec.factor = 8;
          spec.original_positions = 4096;
          const auto x = device.activation("x", {4, 30});
          same(device.rope(x, positions, 10, spec),
               host.rope(host.activation("x", {4, 30}), positions, 10, spec));
          const auto wide = device.add_unrounded(x, x);
          const auto host_x = host.activation("x", {4, 30});
          same(device.rope(wide, positions, 10, spec),
               host.rope(host.add_unrounded(host_x, host_x), positions, 10, spec));
        }
  });
}

TEST_CASE("cuda: products are close to f64, and exact on integers") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const EigenBackend<double> exact = reference(host);
    for (const auto& [tokens, in, out] : std::vector<std::tuple<Index, Index, Index>>{
             {1, 1, 1}, {3, 7, 5}, {17, 300, 9}, {2, 0, 4}, {0, 6, 3}, {4, 5, 0}}) {
      INFO(tokens << " x " << in << " x " << out);
      const FullTensor w = full("w", Shape(out, in));
      const auto x = device.activation("x", {tokens, in});
      close(device.linear(x, loaded(device, w)),
            exact.linear(exact.activation("x", {tokens, in}), load(exact, w)));
      // Of a tensor that is wide: as it is, not rounded first.
      const auto e = exact.activation("x", {tokens, in});
      close(device.linear(device.add_unrounded(x, x), loaded(device, w)),
            exact.linear(exact.add_unrounded(e, e), load(exact, w)));
    }
  });
  EigenOptions integers;
  for (const DType rule : rules) {
    integers.values = {eigen::ValueKind::integer, 3, eigen::integer_range(rule, 500)};
    EigenBackend<float> host(0, rule, integers);
    BoundedCudaBackend device(0, rule, integers, cuda::Device());
    const FullTensor w = full("w", Shape(21, 500));
    auto y = device.linear(device.activation("x", {19, 500}), loaded(device, w));
    device.fetch(y);
    same(y, host.linear(host.activation("x", {19, 500}), load(host, w)));
  }
}

struct Case {
  std::string what;
  AttentionSpec spec;
  bool sinks = false;
};
std::vector<Case> cases() {
  AttentionSpec plain;
  plain.heads = 6, plain.kv_heads = 6, plain.head_dim = 20, plain.v_head_dim = 20;
  plain.scale_dim = 20;
  std::vector<Case> out{{"every head its own keys", plain}};
  const auto with = [&](const std::string& what, bool sinks, const auto& change) {
    out.push_back({what, plain, sinks});
    change(out.back().spec);
  };
  with("grouped queries", false, [](AttentionSpec& s) { s.kv_heads = 2; });
  with("shared by two", false, [](AttentionSpec& s) { s.kv_heads = 3; });
  with("one kv head", false, [](AttentionSpec& s) { s.kv_heads = 1; });
  with("a window", false, [](AttentionSpec& s) { s.window = 3; });
  with("slopes of 12 heads from head 4", false, [](AttentionSpec& s) { s.alibi = Alibi{4, 12}; });
  with("sinks", true, [](AttentionSpec&) {});
  with("narrow values and another scale", false,
       [](AttentionSpec& s) { s.v_head_dim = 7, s.scale_dim = 64; });
  with("everything at once", true, [](AttentionSpec& s) {
    s.kv_heads = 3, s.window = 4, s.alibi = Alibi{6, 12}, s.v_head_dim = 9;
  });
  return out;
}

TEST_CASE("cuda: every shape of attention is close to f64, whole or after a cache") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const EigenBackend<double> exact = reference(host);
    const FullTensor sinks = full("sinks", Shape(6));
    const auto sink = loaded(device, sinks);
    const auto exact_sink = load(exact, sinks);
    for (Case c : cases())
      for (const auto& [past, tokens] :
           std::vector<std::pair<Index, Index>>{{0, 7}, {40, 1}, {2, 3}}) {
        c.spec.first_position = past;
        INFO(c.what << ", " << tokens << " after " << past);
        const Shape q(tokens, c.spec.heads * c.spec.head_dim),
            k(past + tokens, c.spec.kv_heads * c.spec.head_dim),
            v(past + tokens, c.spec.kv_heads * c.spec.v_head_dim);
        const auto y =
            device.attention(device.activation("q", q), device.activation("k", k),
                             device.activation("v", v), c.spec, c.sinks ? &sink : nullptr);
        close(y,
              exact.attention(exact.activation("q", q), exact.activation("k", k),
                              exact.activation("v", v), c.spec, c.sinks ? &exact_sink : nullptr));
        CHECK(y.bound.maxCoeff() < (device.rule() == DType::bf16 ? 0.05 : 0.01));
      }
  });
}

TEST_CASE("cuda: attention a few tokens at a time has the same bits") {
  for (const DType rule : rules) {
    cuda::Device device;
    CudaBackend b(device, 0, rule);
    AttentionSpec s;
    s.heads = 4, s.kv_heads = 2, s.head_dim = s.v_head_dim = s.scale_dim = 6, s.first_position = 3;
    std::vector<float> numbers(10 * 24);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(i * 7919 % 97) / 97 - 0.5F;
    const auto q = b.from_host({7, 24}, std::span(numbers).first(7 * 24));
    const auto k = b.from_host({10, 12}, std::span(numbers).first(120));
    const auto v = b.from_host({10, 12}, std::span(numbers).last(120));
    const auto whole = b.attention(q, k, v, s, nullptr);
    const auto parts = b.slice(whole, 0, 0, 7);
    device.fill(parts.view(), 0);
    detail::device_attention(device, s, q.view(), k.view(), v.view(), {}, parts.view(), false,
                             4 * 10 * 2);
    CHECK(b.to_host(parts) == b.to_host(whole));
  }
}

TEST_CASE("cuda: a product that is off lies outside its bound") {
  const WithLanes restored(1);
  for (const DType rule : rules) {
    BoundedCudaBackend device(0, rule, tracked(), cuda::Device());
    const EigenBackend<double> exact(0, rule, tracked());
    const FullTensor w = full("w", Shape(8, 64));
    const auto x = device.activation("x", {3, 64});
    const auto weight = loaded(device, w);
    cuda::HostDevice::instance().off_by = 0.25;
    const auto y = device.linear(x, weight);
    cuda::HostDevice::instance().off_by = 0;
    const auto e = exact.linear(exact.activation("x", {3, 64}), load(exact, w));
    CHECK(std::abs(static_cast<double>(y.value(0, 0)) - e.value(0, 0)) >
          y.bound(0, 0) + e.bound(0, 0));
    CHECK(std::abs(static_cast<double>(y.value(0, 1)) - e.value(0, 1)) <=
          y.bound(0, 1) + e.bound(0, 1));
  }
}

}  // namespace
