// SPDX-License-Identifier: MIT
// Layers with one fault each: the real class, and the few lines that are wrong.
#pragma once

#include <utility>

#include <tpsim/verify/faults/faulty_forward.hpp>
#include <tpsim/verify/faults/faulty_loaders.hpp>

namespace tpsim {
namespace detail {

/// Row parallel; not_cut: the whole weight on every rank, its whole product summed.
template <class B>
struct FaultyRow : ChangedRow<FaultyLoader<RowParallelLinear<B>>> {
  using Base = ChangedRow<FaultyLoader<RowParallelLinear<B>>>;
  using Base::Base;
  using typename Base::Param, typename Base::Tensor;

  void weight_loader(Param& param, const FullTensor& loaded) {
    if (this->change == LayerChange::not_cut && loaded.shape().rank() == 2) {
      param = this->backend_->empty("weight", loaded.shape());
      return this->backend_->copy(param, 0, 0, loaded, 0, loaded.shape().rows());
    }
    Base::weight_loader(param, loaded);
  }
  Tensor forward(const Tensor& x) {
    if (this->change == LayerChange::not_cut) return this->sum(this->apply(x, this->tp_rank_ == 0));
    return Base::forward(x);
  }
};

}  // namespace detail

/// The layers in which a LayerChange is possible; with LayerChange::none they are the real ones.
struct FaultyLayers {
  template <class B>
  using Replicated = detail::SummedAgain<detail::FaultyLoader<ReplicatedLinear<B>>>;
  template <class B>
  using Column = detail::SummedAgain<detail::FaultyLoader<ColumnParallelLinear<B>>>;
  template <class B>
  using Row = detail::FaultyRow<B>;
  template <class B>
  using Merged = detail::GatheredAsIs<detail::FaultyMerged<B>>;
  template <class B>
  using Qkv = detail::FaultyQkv<B>;
};

}  // namespace tpsim
