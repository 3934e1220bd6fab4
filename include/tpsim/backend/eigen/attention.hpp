// SPDX-License-Identifier: MIT
// Softmax attention of one sequence: each query head of each token by itself, in one fixed order.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <tpsim/backend/attention_spec.hpp>
#include <tpsim/backend/eigen/attention_bound.hpp>
#include <tpsim/backend/eigen/lanes.hpp>
#include <tpsim/backend/eigen/parallel.hpp>
#include <tpsim/backend/eigen/param.hpp>
#include <tpsim/backend/eigen/precision.hpp>

namespace tpsim::eigen {

/// One query head of one token over the keys it sees.
template <class Real>
class AttentionRow {
 public:
  AttentionRow(const AttentionSpec& spec, const Tensor<Real>& q, const Tensor<Real>& k,
               const Tensor<Real>& v, Index token, Index head)
      : spec_(&spec),
        token_(token),
        first_(spec.first_key(token)),
        q_column_(head * spec.head_dim),
        k_column_(head / spec.group() * spec.head_dim),
        v_column_(head / spec.group() * spec.v_head_dim),
        q_(q.value.data() + token * q.value.cols() + q_column_),
        k_(k.value.data() + k_column_),
        v_(v.value.data() + v_column_),
        k_stride_(k.value.cols()),
        v_stride_(v.value.cols()),
        scores_(static_cast<std::size_t>(spec.last_key(token) - first_ + 1)) {}

  /// Fills output(), the row of `v_head_dim` numbers, in double.
  /// @param sink  -infinity for none: its share of the softmax is 0
  void run(double sink, double slope) {
    const double scale = 1 / std::sqrt(static_cast<double>(spec_->scale_dim));
    double top = sink;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const Index j = first_ + static_cast<Index>(i);
      const Real* key = k_ + j * k_stride_;
      const double product = lane_sum(spec_->head_dim, [&](Index c) {
        return static_cast<double>(q_[c]) * static_cast<double>(key[c]);
      });
      scores_[i] = product * scale + slope * static_cast<double>(j - spec_->last_key(token_));
      top = std::max(top, scores_[i]);
    }
    top_ = top;
    weights_.resize(scores_.size());
    total_ = 0;
    output_.assign(static_cast<std::size_t>(spec_->v_head_dim), 0.0);
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const double weight = std::exp(scores_[i] - top);
      weights_[i] = weight;
      total_ += weight;
      const Real* value = v_ + (first_ + static_cast<Index>(i)) * v_stride_;
      double* out = output_.data();
      for (Index c = 0; c < spec_->v_head_dim; ++c)
        out[c] += weight * static_cast<double>(value[c]);
    }
    total_ += std::exp(sink - top);
    for (double& y : output_) y /= total_;
  }
  [[nodiscard]] const std::vector<double>& output() const { return output_; }

  /// What output() may be off, before it is rounded. `k_bound` and `v_bound` are whole tensors,
  /// `q_bound` too.
  void bound(const AttentionBounds& bounds, double sink, double slope, double* out) const {
    const double scale = 1 / std::sqrt(static_cast<double>(spec_->scale_dim));
    const Index dim = spec_->head_dim;
    const double unit = lane_error(dim) + 3 * 0x1p-53;
    const double* q_error = bounds.q.data() + token_ * bounds.q.cols() + q_column_;
    SoftmaxBound softmax(spec_->v_head_dim, output_, static_cast<Index>(scores_.size()));
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const Index j = first_ + static_cast<Index>(i);
      const Real* key = k_ + j * k_stride_;
      const double* k_error = bounds.k.data() + j * bounds.k.cols() + k_column_;
      const double product = lane_sum(dim, [&](Index c) {
        const double a = std::abs(static_cast<double>(q_[c]));
        const double b = std::abs(static_cast<double>(key[c]));
        return a * (k_error[c] + unit * b) + q_error[c] * (b + k_error[c]);
      });
      const double shift = slope * static_cast<double>(spec_->last_key(token_) - j);
      const double own = 4 * std::abs(shift) + std::abs(scores_[i]);
      softmax.add_key(weights_[i], product * scale + own * 0x1p-53, scores_[i] - top_,
                      v_ + j * v_stride_, bounds.v.data() + j * bounds.v.cols() + v_column_);
    }
    if (std::isfinite(sink)) softmax.add_sink(std::exp(sink - top_), sink - top_);
    softmax.finish(out);
  }

 private:
  const AttentionSpec* spec_;
  Index token_, first_, q_column_, k_column_, v_column_;
  const Real *q_, *k_, *v_;
  Index k_stride_, v_stride_;
  std::vector<double> scores_, weights_, output_;  ///< [keys], [keys], [v_head_dim]
  double top_ = 0, total_ = 0;
};

/// Scores, softmax and sums in double, key by key in the order of their positions, rounded once.
/// A head's bits depend on its own q, k, v and sink alone: not on the threads, nor on the other
/// heads of the rank, nor on how many tokens come at once.
/// Error: of the scores, (|q| e_k + |k| e_q + e_q e_k) / sqrt(scale_dim) and their arithmetic in
/// double; of what the softmax makes of it, SoftmaxBound; and the rounding of the result.
/// @throws LayoutError (heads) with everything that does not fit
template <class Real>
[[nodiscard]] Tensor<Real> attention(const Precision<Real>& p, const Tensor<Real>& q,
                                     const Tensor<Real>& k, const Tensor<Real>& v,
                                     const AttentionSpec& spec, const Param* sinks) {
  require_attention_fits(spec, shape_of(q), shape_of(k), shape_of(v),
                         sinks == nullptr ? std::nullopt : std::optional(sinks->shape.rows()));
  const Index tokens = q.value.rows();
  Tensor<Real> out = p.make(tokens, spec.heads * spec.v_head_dim);
  AttentionBounds bounds;
  if (p.track_bounds) bounds = {bound_or_zeros(q), bound_or_zeros(k), bound_or_zeros(v)};
  const Index work = tokens * spec.heads * k.value.rows() * (spec.head_dim + spec.v_head_dim);
  parallel_for(spec.heads * tokens, work > 1 << 14, [&](Index piece) {
    const Index head = piece / tokens, token = piece % tokens;
    const double sink =
        sinks == nullptr ? -std::numeric_limits<double>::infinity() : sinks->at(head, 0);
    const double slope =
        spec.alibi ? alibi_slope(spec.alibi->first_head + head, spec.alibi->total_heads) : 0;
    AttentionRow<Real> row(spec, q, k, v, token, head);
    row.run(sink, slope);
    const Index at = token * out.value.cols() + head * spec.v_head_dim;
    std::transform(row.output().begin(), row.output().end(), out.value.data() + at,
                   [](double y) { return static_cast<Real>(y); });
    if (p.track_bounds) row.bound(bounds, sink, slope, out.bound.data() + at);
  });
  return p.finish(std::move(out), p.operation());
}

}  // namespace tpsim::eigen
