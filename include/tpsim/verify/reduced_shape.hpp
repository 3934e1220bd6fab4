// SPDX-License-Identifier: MIT
// A small model that a tp cuts in the same way as a large one: what costs hours at full size is
// exact in milliseconds here.
#pragma once

#include <algorithm>
#include <numeric>

#include <tpsim/layers/decoder_options.hpp>
#include <tpsim/layout/plan.hpp>

namespace tpsim {

struct ReducedShape {
  DecoderShape layer;
  VocabShape vocab;
};

namespace detail {

/// Small, at least 1, and 1, even or odd as n is.
[[nodiscard]] constexpr Index small_like(Index n) { return n == 1 ? 1 : n % 2 == 0 ? 2 : 3; }

/// n itself, or a smaller number with the same remainder of `modulus` that is `least` or more.
[[nodiscard]] constexpr Index smaller_with_remainder(Index n, Index modulus, Index least) {
  const Index rest = n % modulus;
  return std::min(n, rest + (least - rest + modulus - 1) / modulus * modulus);
}

class ShapeReduction {
 public:
  ShapeReduction(const DecoderShape& layer, const VocabShape& vocab, Index tp)
      : tp_(tp), full_(layer), full_vocab_(vocab), out_{layer, vocab} {
    heads();
    head_columns();
    hidden();
    out_.layer.intermediate = intermediate();
    if (out_.layer.attention.window)
      out_.layer.attention.window = std::min(*out_.layer.attention.window, window_);
    out_.vocab.hidden = out_.layer.hidden();
    out_.vocab.vocab = vocabulary();
  }
  [[nodiscard]] ReducedShape take() { return std::move(out_); }

 private:
  /// A prompt of the exact reading is longer: window_ < 6 (DecoderSubject::exact_tokens).
  static constexpr Index window_ = 3;
  static constexpr Index affordable_elements = Index{1} << 18;

  [[nodiscard]] const QkvShape& full() const { return full_.attention.qkv; }
  [[nodiscard]] QkvShape& qkv() { return out_.layer.attention.qkv; }

  /// Shared kv heads stay shared by as many ranks; a rank has one head, or an odd or even number.
  void heads() {
    const Index group = full().heads / full().kv_heads;
    if (full().kv_heads < tp_) {
      const Index sharing = tp_ / full().kv_heads;
      qkv().heads = full().kv_heads * sharing * small_like(group / sharing);
    } else {
      qkv().kv_heads = tp_ * small_like(full().kv_heads / tp_);
      qkv().heads = qkv().kv_heads * small_like(group);
    }
  }

  /// Four columns are two rotary pairs, so that the ways to pair them differ.
  void head_columns() {
    AttentionShape& a = out_.layer.attention;
    const Index d = full().head_dim;
    Index small = std::min(d, d % 2 == 0 ? Index{4} : Index{5});
    if (a.rope) {
      const Index rotary = a.rope->rotary_dim, wanted = std::min<Index>(rotary, 4);
      const auto part = [&](Index n) { return n * rotary / d; };
      while (small < d && (small % 2 != d % 2 || small * rotary % d != 0 || part(small) % 2 != 0 ||
                           part(small) < wanted))
        ++small;
      a.rope->rotary_dim = part(small);
    }
    qkv().head_dim = small;
    if (full().v_head() != d) {
      const Index v = full().v_head();
      qkv().v_head_dim = v < d ? std::max<Index>(1, small / 2) : small + 2;
    } else {
      qkv().v_head_dim = full().v_head_dim == 0 ? 0 : small;
    }
    if (a.scale_dim) a.scale_dim = *a.scale_dim == d ? small : *a.scale_dim;
  }

  /// All heads together are as wide as the residual stream, narrower or wider.
  void hidden() {
    const Index heads = qkv().heads * qkv().head_dim, wide = full().heads * full().head_dim;
    Index h = heads;
    if (full().hidden < wide)
      h = std::min(heads - 2, std::max<Index>(6, heads / 2 + 2));
    else if (full().hidden > wide)
      h = heads + 6;
    // An equal width of anything else would let a mixed-up dimension pass.
    const Index i = intermediate_for(h);
    if (h != heads && (h == i || h == 2 * i)) h += full().hidden < wide ? -2 : 2;
    qkv().hidden = std::max<Index>(h, 1);
  }

  [[nodiscard]] Index intermediate() const {
    return intermediate_for(out_.layer.attention.qkv.hidden);
  }
  /// Columns of a rank with the same remainder of 64 where that is cheap, else of 8.
  [[nodiscard]] Index intermediate_for(Index hidden) const {
    const Index each = full_.intermediate / tp_;
    const Index fine = tp_ * smaller_with_remainder(each, 64, 5);
    return fine * hidden <= affordable_elements ? fine : tp_ * smaller_with_remainder(each, 8, 5);
  }

  /// As many rows of padding at the end, over as many ranks; rows of a rank odd or even.
  [[nodiscard]] Index vocabulary() const {
    const VocabShape& v = full_vocab_;
    const Index multiple = std::lcm(v.pad_to * (v.pad_times_tp ? tp_ : 1), tp_);
    const Index padded = padded_vocab(v, tp_), padding = padded - v.vocab;
    const Index rows = padded / tp_;
    for (Index small = multiple; small < padded; small += multiple) {
      const Index each = small / tp_;
      if (small - padding > 0 && each > 1 && padding / each == padding / rows &&
          (padding % each == 0) == (padding % rows == 0) && each % 2 == rows % 2 &&
          (v.pad_to > 1 || each >= std::min<Index>(rows, 5)))
        return small - padding;
    }
    return v.vocab;
  }

  Index tp_;
  DecoderShape full_;
  VocabShape full_vocab_;
  ReducedShape out_;
};

}  // namespace detail

/// Small sizes that the tp meets with the same remainders and ratios: kv heads fewer than ranks,
/// as many or more, and how many ranks share one; query heads of a kv head; heads narrower or wider
/// than the residual stream; the rotary part of a head; another width of v; columns of the MLP on a
/// rank; rows of padding at the end of the vocabulary and the ranks that hold nothing else; a
/// window that tokens see across. Kinds, biases and norms are unchanged.
/// @pre decoder_violations(layer, tp) and vocab_violations(vocab, tp) are empty
/// @post they are empty for the result
[[nodiscard]] inline ReducedShape reduced_shape(const DecoderShape& layer, const VocabShape& vocab,
                                                Index tp) {
  return detail::ShapeReduction(layer, vocab, tp).take();
}

/// The extents of a decoder's axes: H, kv, g, h, d, m, i, and V of the vocabulary.
[[nodiscard]] inline Axes decoder_axes(const DecoderShape& s, const VocabShape& vocab) {
  const QkvShape& q = s.attention.qkv;
  return {{"H", q.hidden},   {"kv", q.kv_heads}, {"g", q.heads / q.kv_heads}, {"h", q.heads},
          {"d", q.head_dim}, {"m", q.v_head()},  {"i", s.intermediate},       {"V", vocab.vocab}};
}

/// The plan with the sizes of another shape. @throws LayoutError as bind_plan
[[nodiscard]] inline BoundPlan rebound(const BoundPlan& plan, const Axes& sizes) {
  Plan other = plan.plan;
  for (auto& [name, extent] : other.axes)
    if (const auto it = sizes.find(name); it != sizes.end()) extent = it->second;
  return bind_plan(other);
}

}  // namespace tpsim
