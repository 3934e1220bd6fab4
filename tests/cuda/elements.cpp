// SPDX-License-Identifier: MIT
// Kernel bodies, element by element, on the CPU: they have EigenBackend's bits for every type, any
// number of lanes and odd sizes.
#include <cmath>
#include <limits>

#include <tests/support/cuda_fixture.hpp>

namespace {

using namespace tpsim;
using namespace tpsim::test_cuda;
using test_eigen::full;
using test_eigen::load;

TEST_CASE("cuda: every 2-byte word and its neighbours convert as on the CPU") {
  for (std::uint32_t w = 0; w < 0x10000U; ++w) {
    const auto word = static_cast<std::uint16_t>(w);
    const float b = eigen::from_bf16(word), h = eigen::from_f16(word);
    bool equal = cuda::bits_of(cuda::from_bf16(word)) == cuda::bits_of(b) &&
                 cuda::bits_of(cuda::from_f16(word)) == cuda::bits_of(h);
    for (const std::uint32_t low : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U,
                                    0xefffU, 0xf000U, 0xf001U, 0xffffU}) {
      const float x = cuda::float_of(w << 16U | low);
      equal = equal && cuda::to_bf16(x) == eigen::to_bf16(x) && cuda::to_f16(x) == eigen::to_f16(x);
    }
    if (!equal) FAIL("word " << w);
  }
}

TEST_CASE("cuda: sums, products and factors are the CPU's to the bit") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    for (const Shape s : shapes) {
      INFO(s.str());
      const auto ha = host.activation("a", s), hb = host.activation("b", s);
      const auto a = device.activation("a", s), b = device.activation("b", s);
      same(a, ha);
      same(device.add(a, b), host.add(ha, hb));
      same(device.mul(a, b), host.mul(ha, hb));
      same(device.scale(a, Rational(-7, 3)), host.scale(ha, Rational(-7, 3)));
      const auto wide = device.add_unrounded(a, b);
      const auto host_wide = host.add_unrounded(ha, hb);
      same(wide, host_wide);
      same(device.rounded(wide), host.rounded(host_wide));
      same(device.add(wide, wide), host.add(host_wide, host_wide));
      same(device.add(wide, a), host.add(host_wide, ha));
      same(device.scale(wide, Rational(1, 3)), host.scale(host_wide, Rational(1, 3)));
      const FullTensor bias = full("bias", Shape(s.cols()));
      if (s.cols() > 0) {
        const auto w = loaded(device, bias);
        same(device.add_bias(a, w), host.add_bias(ha, load(host, bias)));
        same(device.mul_columns(wide, w), host.mul_columns(host_wide, load(host, bias)));
      }
    }
    const FullTensor period = full("period", Shape(6));
    const auto x = device.activation("x", Shape(4, 18));
    same(device.mul_columns(x, loaded(device, period)),
         host.mul_columns(host.activation("x", Shape(4, 18)), load(host, period)));
  });
}

TEST_CASE("cuda: silu and gelu are the CPU's to the bit") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    eigen::Matrix<double> x(9, 31);
    for (Index i = 0; i < x.size(); ++i)
      x.data()[i] = std::sinh((static_cast<double>(i) - 139.0) / 26.0);
    x(0, 0) = std::numeric_limits<double>::quiet_NaN(), x(0, 1) = HUGE_VAL, x(0, 2) = -0.0;
    const auto d = device.input(x);
    const auto h = host.input(x);
    same(device.silu(d), host.silu(h));
    same(device.gelu(d), host.gelu(h));
    same(device.gelu_tanh(d), host.gelu_tanh(h));
  });
}

TEST_CASE("cuda: slices and joins move bits along both dimensions and round mixed widths") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const auto ha = host.activation("a", {5, 9}), hb = host.activation("b", {5, 9});
    const auto a = device.activation("a", {5, 9}), b = device.activation("b", {5, 9});
    const auto wide = device.add_unrounded(a, b);
    const auto host_wide = host.add_unrounded(ha, hb);
    for (const int dim : {0, 1})
      for (const Index start : {Index{0}, Index{2}, Index{4}})
        for (const Index n : {Index{0}, Index{1}, (dim == 0 ? 5 : 9) - start}) {
          same(device.slice(a, dim, start, n), host.slice(ha, dim, start, n));
          same(device.slice(wide, dim, start, n), host.slice(host_wide, dim, start, n));
        }
    for (const int dim : {0, 1}) {
      const std::vector<const BoundedCudaTensor*> parts{&a, &b, &a}, mixed{&wide, &a};
      const std::vector<const eigen::Tensor<float>*> host_parts{&ha, &hb, &ha},
          host_mixed{&host_wide, &ha};
      same(device.concat(parts, dim), host.concat(host_parts, dim));
      same(device.concat(mixed, dim), host.concat(host_mixed, dim));
    }
    CHECK_THROWS_AS(device.slice(a, 1, 5, 5), LayoutError);
  });
}

TEST_CASE("cuda: sums over ranks have the CPU's orders and roundings") {
  for (const ReduceOrder order : {ReduceOrder::rank, ReduceOrder::ring, ReduceOrder::f32}) {
    EigenOptions options = tracked();
    options.order = order;
    on_each(
        [&](EigenBackend<float>& host, BoundedCudaBackend& device) {
          for (const int ranks : {1, 2, 3, 7, 70}) {
            std::vector<BoundedCudaTensor> parts;
            std::vector<eigen::Tensor<float>> host_parts;
            for (int r = 0; r < ranks; ++r) {
              parts.push_back(device.activation("x" + std::to_string(r), {3, 11}));
              host_parts.push_back(host.activation("x" + std::to_string(r), {3, 11}));
            }
            std::vector<const BoundedCudaTensor*> in;
            std::vector<const eigen::Tensor<float>*> host_in;
            for (const auto& p : parts) in.push_back(&p);
            for (const auto& p : host_parts) host_in.push_back(&p);
            INFO(ranks << " ranks, " << name(order));
            same(device.reduce(Reduction::sum, in), host.reduce(Reduction::sum, host_in));
            same(device.reduce(Reduction::max, in), host.reduce(Reduction::max, host_in));
            const auto wide = device.add_unrounded(parts[0], parts[0]);
            const auto host_wide = host.add_unrounded(host_parts[0], host_parts[0]);
            in.push_back(&wide), host_in.push_back(&host_wide);
            same(device.reduce(Reduction::sum, in), host.reduce(Reduction::sum, host_in));
          }
        },
        options);
  }
}

TEST_CASE("cuda: the largest keeps a NaN from either side") {
  on_each([](EigenBackend<float>& /*host*/, BoundedCudaBackend& device) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    eigen::Matrix<double> a(1, 3), b(1, 3);
    a << nan, 1, -2;
    b << 5, nan, -1;
    const auto x = device.input(a), y = device.input(b);
    const std::vector<const BoundedCudaTensor*> in{&x, &y};
    const auto most = device.reduce(Reduction::max, in);
    CHECK(std::isnan(most.value(0, 0)));
    CHECK(std::isnan(most.value(0, 1)));
    CHECK(most.value(0, 2) == -1);
  });
}

TEST_CASE("cuda: rows are looked up and tokens kept as on the CPU") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    const FullTensor table = full("table", Shape(6, 19));
    const auto w = loaded(device, table);
    const std::vector<Index> rows{5, 0, -3, 99, 2};
    const auto x = device.lookup(w, rows);
    const auto host_x = host.lookup(load(host, table), rows);
    same(x, host_x);
    const std::vector<bool> keep{true, false, true, false, false};
    same(device.keep_tokens(x, keep), host.keep_tokens(host_x, keep));
    CHECK(device.lookup(w, {}).value.size() == 0);
  });
}

TEST_CASE("cuda: the greatest column and its id are the CPU's, with ties, NaNs and no columns") {
  on_each([](EigenBackend<float>& host, BoundedCudaBackend& device) {
    eigen::Matrix<double> x(5, 67);
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<double>((i * 37) % 11) - 5;
    x(1, 60) = std::numeric_limits<double>::quiet_NaN();
    x(1, 3) = x(1, 60);
    x.row(2).setConstant(-HUGE_VAL);
    const auto d = device.input(x);
    const auto h = host.input(x);
    const auto pairs = device.largest(d, 1000);
    const auto host_pairs = host.largest(h, 1000);
    same(pairs, host_pairs);
    const auto none = device.largest(device.slice(d, 1, 0, 0), 7);
    const auto host_none = host.largest(host.slice(h, 1, 0, 0), 7);
    same(none, host_none);
    const std::vector<const BoundedCudaTensor*> all{&none, &pairs, &pairs};
    const std::vector<const eigen::Tensor<float>*> host_all{&host_none, &host_pairs, &host_pairs};
    same(device.best_of(device.concat(all, 1)), host.best_of(host.concat(host_all, 1)));
  });
}

}  // namespace
