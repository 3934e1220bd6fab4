// SPDX-License-Identifier: MIT
// A stranger's feed-forward, written on the Backend alone: down((up x + b)^2).
#pragma once

#include <tpsim/verify/module.hpp>

namespace stranger {

struct SquareShape {
  tpsim::Index hidden = 0, inner = 0;
};

/// What is wrong with it.
enum class MlpFault { none, no_sum, up_from_rank_zero, down_cut_strided, down_never_loaded };

template <tpsim::Backend B, MlpFault fault = MlpFault::none>
class SquareMlp {
 public:
  using Tensor = typename B::Tensor;

  SquareMlp(B& b, tpsim::Communicator& tp, const SquareShape& s)
      : b_(b),
        tp_(tp),
        mine_(tpsim::divide(s.inner, tp.size(), "inner columns")),
        up_(b.empty("up", {mine_, s.hidden})),
        up_bias_(b.empty("up bias", tpsim::Shape(mine_))),
        down_(b.empty("down", {s.hidden, mine_})) {}

  tpsim::Params<B> params() {
    return {{"up_proj.weight", &up_}, {"up_proj.bias", &up_bias_}, {"down_proj.weight", &down_}};
  }
  bool load(const std::string& name, const tpsim::FullTensor& t) {
    const tpsim::Index first = fault == MlpFault::up_from_rank_zero ? 0 : tp_.rank() * mine_;
    if (name == "up_proj.weight") b_.copy(up_, 0, 0, t, first, mine_);
    if (name == "up_proj.bias") b_.copy(up_bias_, 0, 0, t, first, mine_);
    if (name == "down_proj.weight") load_down(t);
    return name.starts_with("up_proj.") || name == "down_proj.weight";
  }
  Tensor forward(const Tensor& x) {
    const Tensor up = b_.add_bias(b_.linear(x, up_), up_bias_);
    Tensor y = b_.linear(b_.mul(up, up), down_);
    return fault == MlpFault::no_sum ? std::move(y) : all_reduce(b_, tp_, std::move(y));
  }

  static Tensor full(B& b, const Tensor& x, const tpsim::FullParams<B>& t) {
    const Tensor up = full_linear(b, x, t, "up_proj.");
    return full_linear(b, b.mul(up, up), t, "down_proj.");
  }

 private:
  void load_down(const tpsim::FullTensor& t) {
    if (fault == MlpFault::down_never_loaded) return;
    for (tpsim::Index i = 0; i < mine_; ++i)
      b_.copy(down_, 1, i, t,
              fault == MlpFault::down_cut_strided ? i * tp_.size() + tp_.rank()
                                                  : tp_.rank() * mine_ + i,
              1);
  }

  B& b_;
  tpsim::Communicator& tp_;
  tpsim::Index mine_;
  typename B::Param up_, up_bias_, down_;
};

template <MlpFault fault = MlpFault::none>
struct SquareMlpModule {
  template <class B>
  using Rank = SquareMlp<B, fault>;
  static tpsim::Plan plan(const SquareShape& s) {
    return {.name = "square_mlp",
            .axes = {{"H", s.hidden}, {"i", s.inner}},
            .tensors = {{"up_proj.weight", "i", "H", "column", "i even"},
                        {"up_proj.bias", "i", "", "column", "i even"},
                        {"down_proj.weight", "H", "i", "row", "i even"}},
            .input = "H",
            .outputs = {"H"},
            .collectives = {{"all_reduce"}}};
  }
};

}  // namespace stranger
