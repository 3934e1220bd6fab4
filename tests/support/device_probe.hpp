// SPDX-License-Identifier: MIT
// The layers and the operations of the CUDA backend against integer references.
//
// All data are small integers whose sums fp32 holds exactly, so any order of addition gives the
// same bits, on the host, in kernels and in cuBLAS.
#pragma once

#include <cmath>

#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/layers/linear.hpp>
#include <tpsim/layers/mlp.hpp>

#include <tests/support/probe_fixture.hpp>

namespace tpsim::testing {

class DeviceProbe {
  using B = CudaBackend;
  using Tensor = B::Tensor;
  using Param = B::Param;

 public:
  DeviceProbe(cuda::Device device, std::string where)
      : b_(std::move(device)), where_(std::move(where)) {}

  void run() {
    parameters();
    operations();
    for (const int tp : {1, 2, 4}) {
      column(tp);
      row(tp);
      qkv(tp);
      mlp(tp);
    }
  }

 private:
  void parameters() {
    Param a = b_.empty("a", Shape(3, 5)), c = b_.empty("c", Shape(3, 5));
    std::vector<float> first = b_.to_host(a), second = b_.to_host(c);
    for (std::size_t i = 0; i < first.size(); ++i)
      expect(std::isnan(first[i]) && std::memcmp(&first[i], &second[i], sizeof(float)) == 0,
             say("poison is a NaN, the rank's own"));
    // Rows 1, 3, 5 of the view, as rows 0 to 2; columns 2 and 3 go to 1 and 2.
    Runs order;
    for (const Index r : {6, 1, 3, 5}) order.append({r, 1, 1});
    const FullTensor view = tensor("view", Shape(8, 5)).rows(order);
    b_.copy(a, 0, 0, view, 1, 3);
    const std::vector<float> all = numbers(view);
    expect_bits(b_.to_host(a), {all.begin() + 5, all.end()}, say("copy follows the view's rows"));
    Param d = b_.empty("d", Shape(4, 4));
    std::vector<float> want = b_.to_host(d);
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t k = 0; k < 2; ++k) want[r * 4 + 1 + k] = all[r * 5 + 2 + k];
    b_.copy(d, 1, 1, view, 2, 2);
    expect_bits(b_.to_host(d), want, say("copy fills its columns and no other"));
    expect_refused([&] { b_.copy(d, 1, 3, view, 2, 2); }, say("copy past the end is refused"));
    // More than one staging buffer.
    Param big = b_.empty("big", Shape(3, 3 << 20));
    const FullTensor wide = tensor("wide", Shape(3, 3 << 20));
    b_.copy(big, 0, 0, wide, 0, 3);
    expect_bits(b_.to_host(big), numbers(wide), say("copy in several parts is whole"));
  }

  void operations() {
    const float nan = std::nanf("");
    // In rank order the ones vanish beside 2^25.
    std::vector<Tensor> parts;
    std::vector<const Tensor*> in;
    for (int k = 0; k < 70; ++k) {
      const float first = k == 0 ? 0x1p25F : k == 69 ? -0x1p25F : 1.0F;
      parts.push_back(b_.from_host(
          Shape(1, 3), std::vector<float>{first, static_cast<float>(k % 67), k == 66 ? nan : 9}));
    }
    for (const Tensor& part : parts) in.push_back(&part);
    expect_bits(b_.to_host(b_.slice(b_.reduce(Reduction::sum, in), 1, 0, 2)), {0, 2214},
                say("sum adds in rank order"));
    const std::vector<float> most = b_.to_host(b_.reduce(Reduction::max, in));
    expect(most[0] == 0x1p25F && most[1] == 66 && std::isnan(most[2]),
           say("max takes the largest and keeps poison"));
    const std::vector<float> at{-100, -2, -0.5F, 0, 0.5F, 3, 17, 90};
    const std::vector<float> silu = b_.to_host(b_.silu(b_.from_host(Shape(2, 4), at)));
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double x = static_cast<double>(at[i]), want = x / (1 + std::exp(-x));
      expect(std::abs(static_cast<double>(silu[i]) - want) <= 0x1p-20 * std::abs(want) + 0x1p-126,
             say("silu is x sigmoid(x) within 8 last places or underflow"));
    }
    expect_refused(
        [&] {
          (void)b_.mul(parts[0], b_.silu(b_.from_host(Shape(1, 2), std::vector<float>{1, 2})));
        },
        say("operands of two shapes are refused"));
  }

  void column(int tp) {
    const FullTensor w = tensor("column.weight", Shape(8, 12)), c = tensor("column.bias", Shape(8));
    const std::vector<float> x = numbers(tensor("column.x", Shape(5, 12)));
    std::vector<Tensor> y;
    for (int r = 0; r < tp; ++r) {
      HandRank rank(r, tp);
      ColumnParallelLinear<B> layer(b_, rank, 12, 8, {.bias = true});
      layer.weight_loader(layer.weight, w);
      layer.weight_loader(*layer.bias, c);
      y.push_back(layer.forward(b_.from_host(Shape(5, 12), x)));
    }
    FullParams<B> t = params({{"weight", w}, {"bias", c}});
    const std::vector<float> want = product(x, w, numbers(c));
    expect_bits(b_.to_host(join_columns(b_, y)), want, say("column equals the reference", tp));
    expect_bits(b_.to_host(ColumnParallelLinear<B>::full(b_, b_.from_host(Shape(5, 12), x), t)),
                want, say("column full equals the reference"));
  }

  void row(int tp) {
    const FullTensor w = tensor("row.weight", Shape(7, 8)), c = tensor("row.bias", Shape(7));
    const std::vector<float> x = numbers(tensor("row.x", Shape(5, 8)));
    std::vector<Tensor> y;
    for (int r = 0; r < tp; ++r) {
      HandRank rank(r, tp);
      RowParallelLinear<B> layer(b_, rank, 8, 7, {.bias = true, .input_is_parallel = false});
      layer.weight_loader(layer.weight, w);
      layer.weight_loader(*layer.bias, c);
      y.push_back(layer.forward(b_.from_host(Shape(5, 8), x)));
      expect(rank.reductions == (tp > 1 ? 1 : 0), say("row reduces once", tp));
    }
    expect_bits(sum(y), product(x, w, numbers(c)), say("row equals the reference", tp));
  }

  // 4 query heads of 2, 2 kv heads, fused per kv group: kv*(q:g*d + k:d + v:d).
  void qkv(int tp) {
    const FullTensor disk = tensor("qkv.weight", Shape(16, 6));
    const auto group = [](Index begin, Index rows) {
      Runs r = Runs::range(begin, begin + rows);
      r.append(Runs::range(8 + begin, 8 + begin + rows));
      return r;
    };
    const RowLayout layout({{"q", group(0, 4)}, {"k", group(4, 2)}, {"v", group(6, 2)}});
    const std::vector<float> x = numbers(tensor("qkv.x", Shape(3, 6)));
    for (int r = 0; r < tp; ++r) {
      HandRank rank(r, tp);
      QKVParallelLinear<B> layer(b_, rank, {.hidden = 6, .head_dim = 2, .heads = 4, .kv_heads = 2});
      layer.weight_loader(layer.weight, disk, layout);
      const Index q = 8 / tp, kv = std::max(2, 4 / tp), kv_begin = tp == 4 ? r / 2 * 2 : r * kv;
      Runs mine = layout.rows_of("q").slice(r * q, q);
      mine.append(layout.rows_of("k").slice(kv_begin, kv));
      mine.append(layout.rows_of("v").slice(kv_begin, kv));
      expect_bits(b_.to_host(layer.forward(b_.from_host(Shape(3, 6), x))),
                  product(x, disk.rows(mine), {}), say("qkv equals the reference", tp));
    }
  }

  // x and gate are positive, so that every gate is at least 24, where silu is the identity in fp32
  // and the whole layer stays in the integers: at most 216 * 216 * 3 * 8, under 2^24.
  void mlp(int tp) {
    const FullTensor gate = tensor("gate", Shape(8, 24), false), up = tensor("up", Shape(8, 24)),
                     down = tensor("down", Shape(24, 8));
    const std::vector<float> x = numbers(tensor("mlp.x", Shape(4, 24), false));
    std::vector<Tensor> y;
    for (int r = 0; r < tp; ++r) {
      HandRank rank(r, tp);
      GatedMLP<B> layer(b_, rank, {.hidden = 24, .intermediate = 8});
      layer.gate_up_proj.weight_loader(layer.gate_up_proj.weight, gate, "gate");
      layer.gate_up_proj.weight_loader(layer.gate_up_proj.weight, up, "up");
      layer.down_proj.weight_loader(layer.down_proj.weight, down);
      y.push_back(layer.forward(b_.from_host(Shape(4, 24), x)));
    }
    std::vector<float> middle = product(x, gate, {});
    const std::vector<float> other = product(x, up, {});
    for (std::size_t i = 0; i < middle.size(); ++i) middle[i] *= other[i];
    const std::vector<float> want = product(middle, down, {});
    FullParams<B> t =
        params({{"gate_proj.weight", gate}, {"up_proj.weight", up}, {"down_proj.weight", down}});
    expect_bits(sum(y), want, say("mlp equals the reference", tp));
    expect_bits(b_.to_host(GatedMLP<B>::full(b_, b_.from_host(Shape(4, 24), x), t)), want,
                say("mlp full equals the reference"));
  }

  std::vector<float> sum(const std::vector<Tensor>& ranks) {
    std::vector<const Tensor*> in;
    for (const Tensor& y : ranks) in.push_back(&y);
    return b_.to_host(b_.reduce(Reduction::sum, in));
  }
  FullParams<B> params(const std::vector<std::pair<std::string, FullTensor>>& tensors) {
    FullParams<B> t;
    for (const auto& [name, full] : tensors) {
      Param p = b_.empty(name, full.shape());
      b_.copy(p, 0, 0, full, 0, full.shape().rows());
      t.emplace(name, std::move(p));
    }
    return t;
  }
  [[nodiscard]] std::string say(const std::string& sentence, int tp = 0) const {
    return where_ + ": " + sentence + (tp > 0 ? " at tp " + std::to_string(tp) : "");
  }

  B b_;
  std::string where_;
};

}  // namespace tpsim::testing
