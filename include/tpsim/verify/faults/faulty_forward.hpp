// SPDX-License-Identifier: MIT
// Forward passes that treat a bias, a sum or a gather in another way than the real layer. Some of
// them are right all the same (verify/faults/benign.hpp).
#pragma once

#include <utility>

#include <tpsim/core/rational.hpp>
#include <tpsim/verify/layer_modules.hpp>

namespace tpsim::detail {

/// Sums the whole result over the ranks once more.
template <class Base>
struct SummedAgain : Base {
  using Base::Base;
  using typename Base::Tensor;

  Tensor forward(const Tensor& x) {
    Tensor y = Base::forward(x);
    return this->change == LayerChange::sum_of_whole && this->tp_size_ > 1
               ? all_reduce(*this->backend_, *this->comm_, std::move(y))
               : std::move(y);
  }
};

/// Leaves gathered parts as they come: [g0 u0 g1 u1 ...].
template <class Base>
struct GatheredAsIs : SummedAgain<Base> {
  using SummedAgain<Base>::SummedAgain;
  using typename Base::Tensor;

  Tensor forward(const Tensor& x) {
    if (this->change != LayerChange::parts_not_regrouped || !this->gather_output_ ||
        this->tp_size_ == 1)
      return SummedAgain<Base>::forward(x);
    return all_gather(*this->backend_, *this->comm_, this->apply(x, true));
  }
};

/// Row parallel, with the bias or the sum at another place.
template <class Base>
struct ChangedRow : Base {
  using Base::Base;
  using typename Base::Tensor;

  Tensor forward(const Tensor& x) {
    const bool first = this->tp_rank_ == 0;
    switch (this->change) {
      case LayerChange::bias_on_every_rank:
        return sum(product(x, true));
      case LayerChange::bias_on_no_rank:
        return sum(product(x, false));
      case LayerChange::bias_divided_on_rank_zero:
        return sum(first ? with_part_of_bias(product(x, false)) : product(x, false));
      case LayerChange::bias_divided:
        return sum(with_part_of_bias(product(x, false)));
      case LayerChange::bias_after_sum:
        return with_bias(sum(product(x, false)));
      case LayerChange::bias_after_sum_on_rank_zero:
        return first ? with_bias(sum(product(x, false))) : sum(product(x, false));
      case LayerChange::average:
        return this->backend_->scale(Base::forward(x), Rational(1, this->tp_size_));
      case LayerChange::residual_in_sum:
        return around_residual(x);
      default:
        return Base::forward(x);
    }
  }

 protected:
  [[nodiscard]] Tensor product(const Tensor& x, bool add_bias) const {
    return this->apply(this->input_is_parallel_ ? x : this->split_columns(x), add_bias);
  }
  [[nodiscard]] Tensor sum(Tensor y) {
    return this->reduce_results_ && this->tp_size_ > 1
               ? all_reduce(*this->backend_, *this->comm_, std::move(y))
               : std::move(y);
  }

 private:
  [[nodiscard]] bool adds_bias() const { return this->bias && !this->skip_bias_add_; }
  [[nodiscard]] Tensor with_bias(Tensor y) {
    return adds_bias() ? this->backend_->add_bias(y, *this->bias) : std::move(y);
  }
  /// y + bias / tp, as (tp y + bias) / tp.
  [[nodiscard]] Tensor with_part_of_bias(Tensor y) {
    if (!adds_bias()) return y;
    const auto tp = Rational(this->tp_size_);
    y = this->backend_->add_bias(this->backend_->scale(y, tp), *this->bias);
    return this->backend_->scale(y, Rational(1, this->tp_size_));
  }
  /// Adds x before the sum and takes it off after it. Needs a whole x that is as wide as y.
  [[nodiscard]] Tensor around_residual(const Tensor& x) {
    if (this->input_is_parallel_ || !this->reduce_results_) return Base::forward(x);
    Tensor y = product(x, this->tp_rank_ == 0);
    if (this->backend_->shape(x) != this->backend_->shape(y)) return sum(std::move(y));
    y = sum(this->backend_->add(y, x));
    return this->backend_->add(y, this->backend_->scale(x, Rational(-1)));
  }
};

}  // namespace tpsim::detail
