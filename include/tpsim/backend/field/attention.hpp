// SPDX-License-Identifier: MIT
// Attention in the exact reading: scores and averages are exact, the softmax is
// E(s_j) / sum E(s_j) with an exponential E that is known only to be a function.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <tpsim/backend/attention_spec.hpp>
#include <tpsim/backend/field/functions.hpp>
#include <tpsim/backend/field/kernel.hpp>
#include <tpsim/backend/field/tensor.hpp>

namespace tpsim::detail {

/// Queries that go through the kernels together: bounds the scores held at a time, and the masked
/// ones among them that are computed in vain.
inline constexpr Index attention_queries = 64;
/// Below this many oracle calls threads cost more than they give.
inline constexpr Index parallel_calls = Index{1} << 12U;

/// Of one call of attention(), whose tensors it refers to. A masked key is left out of both sums.
template <class Oracle>
class FieldAttention {
 public:
  using Element = gf61::Element;

  /// @param sinks  [heads], or none
  /// @pre require_attention_fits()
  FieldAttention(const AttentionSpec& spec, FieldFunctions<Oracle> functions, const FieldTensor& q,
                 const FieldTensor& k, const FieldTensor& v,
                 std::optional<std::span<const Element>> sinks)
      : s_(spec), f_(functions), q_(q), k_(k), v_(v), scale_(f_.rsqrt_of(s_.scale_dim)) {
    calls_ = 1;
    for (Index h = 0; h < s_.heads; ++h) {
      sinks_.push_back(sinks ? f_.exp((*sinks)[static_cast<std::size_t>(h)]) : 0);
      slopes_.push_back(s_.alibi ? f_.slope(s_.alibi->total_heads, s_.alibi->first_head + h) : 0);
      calls_ += static_cast<Index>(sinks.has_value()) + static_cast<Index>(s_.alibi.has_value());
    }
  }

  /// [tokens, heads v_head_dim]. @throws Undefined when a sum of E is 0
  [[nodiscard]] FieldTensor operator()() {
    FieldTensor out(q_.tokens, s_.heads * s_.v_head_dim);
    for (Index kv = 0; kv < s_.kv_heads; ++kv)
      for (Index first = 0; first < q_.tokens; first += attention_queries)
        attend({kv, first, std::min(q_.tokens, first + attention_queries)}, out);
    for (Index t = 0; t < q_.tokens; ++t)
      calls_ += s_.heads * (s_.last_key(t) + 1 - s_.first_key(t));
    return out;
  }

  /// Of the scale, the slopes and the sinks once, of every key that a head's query sees once.
  [[nodiscard]] Index oracle_calls() const { return calls_; }
  [[nodiscard]] Index macs() const { return macs_; }

 private:
  /// The query heads of one kv head at tokens [first, last), as rows: head by head.
  struct Queries {
    Index kv, first, last;
    [[nodiscard]] Index tokens() const { return last - first; }
  };

  void attend(const Queries& b, FieldTensor& out) {
    const Index rows = s_.group() * b.tokens();
    const Index begin = s_.first_key(b.first), keys = s_.last_key(b.last - 1) + 1 - begin;
    const std::vector<Element> queries = gathered(b);
    // [rows, keys]: first q . k, then E of the score, 0 where masked
    std::vector<Element> weights =
        gf61::linear(gf61::PackedTokens(queries, rows, s_.head_dim), keys,
                     [&](Index key, Index col, Index, Element*) {
                       return k_.row(begin + key) + b.kv * s_.head_dim + col;
                     });
    std::vector<Element> factors(static_cast<std::size_t>(rows));
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (rows * keys >= parallel_calls)
#endif
    for (Index row = 0; row < rows; ++row)
      factors[static_cast<std::size_t>(row)] =
          exponentials(b.kv * s_.group() + row / b.tokens(), b.first + row % b.tokens(), begin,
                       std::span(weights).subspan(static_cast<std::size_t>(row * keys),
                                                  static_cast<std::size_t>(keys)));
    if (std::find(factors.begin(), factors.end(), 0U) != factors.end())
      throw Undefined("attention");
    gf61::invert_all(factors);
    const std::vector<Element> averages =
        gf61::linear(gf61::PackedTokens(weights, rows, keys), s_.v_head_dim,
                     [&](Index column, Index key, Index n, Element* buffer) {
                       for (Index j = 0; j < n; ++j)
                         buffer[j] = v_.at(begin + key + j, b.kv * s_.v_head_dim + column);
                       return buffer;
                     });
    for (Index row = 0; row < rows; ++row) {
      const Index head = b.kv * s_.group() + row / b.tokens();
      Element* to = out.row(b.first + row % b.tokens()) + head * s_.v_head_dim;
      for (Index c = 0; c < s_.v_head_dim; ++c)
        to[c] = gf61::mul(averages[static_cast<std::size_t>(row * s_.v_head_dim + c)],
                          factors[static_cast<std::size_t>(row)]);
    }
    macs_ += rows * keys * (s_.head_dim + s_.v_head_dim);
  }

  [[nodiscard]] std::vector<Element> gathered(const Queries& b) const {
    std::vector<Element> out;
    out.reserve(static_cast<std::size_t>(s_.group() * b.tokens() * s_.head_dim));
    for (Index head = b.kv * s_.group(); head < (b.kv + 1) * s_.group(); ++head)
      for (Index t = b.first; t < b.last; ++t) {
        const Element* from = q_.row(t) + head * s_.head_dim;
        out.insert(out.end(), from, from + s_.head_dim);
      }
    return out;
  }

  /// Products of a query with the keys from `begin` on -> E of their scores, 0 where masked; gives
  /// the sum, with the sink's.
  [[nodiscard]] Element exponentials(Index head, Index query, Index begin,
                                     std::span<Element> products) const {
    const auto h = static_cast<std::size_t>(head);
    Element sum = sinks_[h];
    for (Index i = 0; i < static_cast<Index>(products.size()); ++i) {
      const Index key = begin + i;
      Element& value = products[static_cast<std::size_t>(i)];
      if (key < s_.first_key(query) || key > s_.last_key(query)) {
        value = 0;
        continue;
      }
      const Index distance = key - (s_.first_position + query);
      value = f_.exp(
          gf61::add(gf61::mul(value, scale_), gf61::mul(slopes_[h], gf61::residue(distance))));
      sum = gf61::add(sum, value);
    }
    return sum;
  }

  const AttentionSpec& s_;
  FieldFunctions<Oracle> f_;
  const FieldTensor &q_, &k_, &v_;
  Element scale_;
  std::vector<Element> sinks_, slopes_;  ///< [heads]; 0 without
  Index calls_ = 0, macs_ = 0;
};

}  // namespace tpsim::detail
