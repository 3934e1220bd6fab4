// SPDX-License-Identifier: MIT
// Modules that look odd and are right, and their faulty twins: each writes its own collectives.
#pragma once

#include <tpsim/verify/module.hpp>

namespace stranger {

struct OddShape {
  tpsim::Index hidden = 0, inner = 0;
};

enum class Odd {
  tokens_scattered,   ///< reduce_scatter of tokens, then all_gather
  columns_scattered,  ///< reduce_scatter of columns, then all_gather
  gathered_then_sum,  ///< every rank sums the gathered parts, last first
  two_steps,          ///< the sum of pairs, then across the pairs
  residual_on_rank0,  ///< x joins the partial product on rank 0, by reduce()
  shared_down,        ///< down(a) + down(c) + x, where full() has down(a + c) + x
  twice,              ///< down(h) twice, where full() has down(h + h)
  group_too_small,    ///< fault: the first of the two steps alone
  tokens_exchanged,   ///< fault: the first two tokens change places
};

/// down(f(up x)) with the odd parts above.
template <tpsim::Backend B, Odd odd>
class OddMlp {
 public:
  using Tensor = typename B::Tensor;
  using Index = tpsim::Index;

  OddMlp(B& b, tpsim::Communicator& tp, const OddShape& s)
      : b_(b),
        tp_(tp),
        s_(s),
        mine_(tpsim::divide(s.inner, tp.size(), "inner columns")),
        up_(b.empty("up", {mine_, s.hidden})),
        down_(b.empty("down", {s.hidden, mine_})) {}

  tpsim::Params<B> params() { return {{"up_proj.weight", &up_}, {"down_proj.weight", &down_}}; }
  void load(const std::string& name, const tpsim::FullTensor& t) {
    const bool up = name == "up_proj.weight";
    b_.copy(up ? up_ : down_, up ? 0 : 1, 0, t, tp_.rank() * mine_, mine_);
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = b_.linear(x, up_);
    if constexpr (odd == Odd::shared_down)
      return sum(
          all_reduce(b_, tp_, sum(b_.linear(b_.mul(h, h), down_), b_.linear(b_.silu(h), down_))),
          x);
    Tensor y = b_.linear(odd == Odd::twice ? h : b_.mul(h, h), down_);
    if constexpr (odd == Odd::twice) return all_reduce(b_, tp_, sum(y, y));
    if constexpr (odd == Odd::residual_on_rank0)
      return all_reduce(b_, tp_, tp_.rank() == 0 ? sum(y, x) : std::move(y));
    if constexpr (odd == Odd::gathered_then_sum) {
      const Tensor all = all_gather(b_, tp_, std::move(y));
      Tensor total = b_.slice(all, 1, (tp_.size() - 1) * s_.hidden, s_.hidden);
      for (Index r = tp_.size() - 2; r >= 0; --r)
        total = sum(total, b_.slice(all, 1, r * s_.hidden, s_.hidden));
      return total;
    }
    if constexpr (odd == Odd::two_steps || odd == Odd::group_too_small) {
      const auto pair = tp_.split(tp_.rank() / 2, tp_.rank());
      const auto across = tp_.split(tp_.rank() % 2, tp_.rank());
      y = all_reduce(b_, *pair, std::move(y));
      return odd == Odd::two_steps ? all_reduce(b_, *across, std::move(y)) : std::move(y);
    }
    if constexpr (odd == Odd::tokens_exchanged) {
      const Index tokens = b_.shape(y).rows();
      const Tensor first = b_.slice(y, 0, 0, 1), second = b_.slice(y, 0, 1, 1),
                   rest = b_.slice(y, 0, 2, tokens - 2);
      const std::vector<const Tensor*> order{&second, &first, &rest};
      return all_reduce(b_, tp_, b_.concat(order, 0));
    }
    const int dim = odd == Odd::tokens_scattered ? 0 : 1;
    const tpsim::BackendOps<B> ops(b_);
    tp_.reduce_scatter(ops.buffer(y), ops.buffer(y), dim);
    tp_.all_gather(ops.buffer(y), ops.buffer(y), dim);
    return y;
  }

  static Tensor full(B& b, const Tensor& x, const tpsim::FullParams<B>& t) {
    const Tensor h = full_linear(b, x, t, "up_proj.");
    if constexpr (odd == Odd::shared_down)
      return sum(b, full_linear(b, sum(b, b.mul(h, h), b.silu(h)), t, "down_proj."), x);
    if constexpr (odd == Odd::twice) return full_linear(b, sum(b, h, h), t, "down_proj.");
    Tensor y = full_linear(b, b.mul(h, h), t, "down_proj.");
    return odd == Odd::residual_on_rank0 ? sum(b, y, x) : std::move(y);
  }

 private:
  static Tensor sum(B& b, const Tensor& l, const Tensor& r) {
    const std::vector<const Tensor*> both{&l, &r};
    return b.reduce(tpsim::Reduction::sum, both);
  }
  Tensor sum(const Tensor& l, const Tensor& r) { return sum(b_, l, r); }

  B& b_;
  tpsim::Communicator& tp_;
  OddShape s_;
  Index mine_;
  typename B::Param up_, down_;
};

template <Odd odd>
struct OddMlpModule {
  template <class B>
  using Rank = OddMlp<B, odd>;
  static tpsim::Plan plan(const OddShape& s) {
    return {.name = "odd_mlp",
            .axes = {{"H", s.hidden}, {"i", s.inner}},
            .tensors = {{"up_proj.weight", "i", "H", "column", "i even"},
                        {"down_proj.weight", "H", "i", "row", "i even"}},
            .input = "H",
            .outputs = {"H"}};
  }
};

/// A column-parallel product of x and silu(x) side by side, with a bias of another name; its two
/// halves are then multiplied.
template <tpsim::Backend B, bool swapped>
class SideBySide {
 public:
  using Tensor = typename B::Tensor;
  SideBySide(B& b, tpsim::Communicator& tp, const OddShape& s)
      : b_(b),
        tp_(tp),
        mine_(tpsim::divide(s.hidden, tp.size(), "columns")),
        weight_(b.empty("w", {mine_, 2 * s.hidden})),
        bias_(b.empty("b", tpsim::Shape(mine_))) {}
  tpsim::Params<B> params() { return {{"w", &weight_}, {"fc_b", &bias_}}; }
  void load(const std::string& name, const tpsim::FullTensor& t) {
    b_.copy(name == "w" ? weight_ : bias_, 0, 0, t, tp_.rank() * mine_, mine_);
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = b_.silu(x);
    const std::vector<const Tensor*> both{swapped ? &h : &x, swapped ? &x : &h};
    const Tensor y = b_.add_bias(b_.linear(b_.concat(both, 1), weight_), bias_);
    return halves(b_, all_gather(b_, tp_, y));
  }
  static Tensor full(B& b, const Tensor& x, const tpsim::FullParams<B>& t) {
    const Tensor h = b.silu(x);
    const std::vector<const Tensor*> both{&x, &h};
    return halves(b, b.add_bias(b.linear(b.concat(both, 1), t.at("w")), t.at("fc_b")));
  }

 private:
  static Tensor halves(B& b, const Tensor& y) {
    const tpsim::Index half = b.shape(y).cols() / 2;
    return b.mul(b.slice(y, 1, 0, half), b.slice(y, 1, half, half));
  }
  B& b_;
  tpsim::Communicator& tp_;
  tpsim::Index mine_;
  typename B::Param weight_, bias_;
};

template <bool swapped>
struct SideBySideModule {
  template <class B>
  using Rank = SideBySide<B, swapped>;
  static tpsim::Plan plan(const OddShape& s) {
    return {
        .name = "side_by_side",
        .axes = {{"H", s.hidden}, {"two", 2}, {"half", s.hidden / 2}},
        .tensors = {{"w", "H", "two*H", "column", "H even"}, {"fc_b", "H", "", "column", "H even"}},
        .input = "H",
        .outputs = {"half"}};
  }
};

}  // namespace stranger
