// SPDX-License-Identifier: MIT
// Attention on the device: products of queries and keys, a softmax, products with the values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <tpsim/backend/attention_spec.hpp>
#include <tpsim/backend/cuda/tensor.hpp>

namespace tpsim::detail {

/// Heads that one call of Device::product computes together. Kv heads and the query heads that
/// share one are both a constant step apart: the longer of the two is the call's.
class HeadBatches {
 public:
  explicit HeadBatches(const AttentionSpec& s) : group_(s.group()), kv_heads_(s.kv_heads) {}
  [[nodiscard]] bool over_kv_heads() const { return group_ <= kv_heads_; }
  [[nodiscard]] Index calls() const { return over_kv_heads() ? group_ : kv_heads_; }
  [[nodiscard]] Index size() const { return over_kv_heads() ? kv_heads_ : group_; }
  /// First query head and kv head of a call, and from one product to the next.
  [[nodiscard]] Index head(Index call) const { return over_kv_heads() ? call : call * group_; }
  [[nodiscard]] Index kv_head(Index call) const { return over_kv_heads() ? 0 : call; }
  [[nodiscard]] Index head_step() const { return over_kv_heads() ? group_ : 1; }
  [[nodiscard]] Index kv_head_step() const { return over_kv_heads() ? 1 : 0; }

 private:
  Index group_, kv_heads_;
};

/// Scores in f32, the softmax in f64, its weights rounded to q's type as engines do, values summed
/// in f32 and rounded once. Scores are made for as many tokens at once as 2^27 elements allow.
/// @param q, k, v, out  of one type; @pre require_attention_fits
/// @param sinks  [1, heads], no data for none
/// @param tf32  products of f32 may use TF32
/// Source: the order of rounding as in FlashAttention-2 (P in the type of V), which scales last.
inline void device_attention(cuda::Device& device, const AttentionSpec& s, const cuda::Matrix& q,
                             const cuda::Matrix& k, const cuda::Matrix& v,
                             const cuda::ConstMatrix& sinks, const cuda::Matrix& out, bool tf32,
                             Index scores_at_once = Index{1} << 27) {
  const Index context = k.rows, d = s.head_dim, m = s.v_head_dim;
  if (q.rows == 0) return;
  cuda::Device::Buffer slopes = device.allocate(0);
  if (s.alibi) {
    std::vector<double> each;
    for (Index h = 0; h < s.heads; ++h)
      each.push_back(alibi_slope(s.alibi->first_head + h, s.alibi->total_heads));
    slopes = device.array(each.data(), s.heads * static_cast<Index>(sizeof(double)));
  }
  const Index most = std::clamp<Index>(scores_at_once / (s.heads * context), 1, q.rows);
  DeviceTensor products(device, Shape(s.heads * most, context), cuda::Type::f32);
  DeviceTensor weights(device, Shape(s.heads * most, context), out.type);
  const HeadBatches batches(s);
  for (Index first = 0; first < q.rows; first += most) {
    const Index n = std::min(most, q.rows - first);
    const auto part = [&](const cuda::Matrix& x, Index head, Index width) {
      return cuda::part_of(x, first, n, head * width, width);
    };
    const auto of_head = [&](const DeviceTensor& x, Index head) {
      return cuda::part_of(x.view(), head * n, n, 0, context);
    };
    const auto of_keys = [&](const cuda::Matrix& x, Index head, Index width) {
      return cuda::part_of(x, 0, context, head * width, width);
    };
    for (Index call = 0; call < batches.calls(); ++call) {
      cuda::Product p;
      p.a = part(q, batches.head(call), d);
      p.b = of_keys(k, batches.kv_head(call), d);
      p.y = of_head(products, batches.head(call));
      p.count = batches.size(), p.tf32 = tf32;
      p.a_step = batches.head_step() * d, p.b_step = batches.kv_head_step() * d;
      p.y_step = batches.head_step() * n * context;
      device.product(p);
    }
    cuda::SoftmaxSpec softmax;
    softmax.tokens = n, softmax.first_position = s.first_position + first;
    softmax.window = s.window.value_or(0);
    softmax.scale = 1 / std::sqrt(static_cast<double>(s.scale_dim));
    softmax.slopes = static_cast<const double*>(slopes.get());
    softmax.sinks = sinks;
    device.softmax(cuda::part_of(products.view(), 0, s.heads * n, 0, context), softmax,
                   cuda::part_of(weights.view(), 0, s.heads * n, 0, context));
    for (Index call = 0; call < batches.calls(); ++call) {
      cuda::Product p;
      p.a = of_head(weights, batches.head(call));
      p.b = of_keys(v, batches.kv_head(call), m);
      p.y = part(out, batches.head(call), m);
      p.transposed = false;
      p.count = batches.size(), p.tf32 = tf32;
      p.a_step = batches.head_step() * n * context, p.b_step = batches.kv_head_step() * m;
      p.y_step = batches.head_step() * m;
      device.product(p);
    }
  }
}

}  // namespace tpsim::detail
