// SPDX-License-Identifier: MIT
// The embedding and the head with one fault each: the real class, and the few lines that are wrong.
#pragma once

#include <utility>

#include <tpsim/verify/vocab_subjects.hpp>

namespace tpsim {
namespace detail {

template <class B>
struct FaultyEmbedding : VocabParallelEmbedding<B> {
  using Base = VocabParallelEmbedding<B>;
  using Base::Base;
  using typename Base::Param, typename Base::Tensor;
  LayerChange change = LayerChange::none;

  void weight_loader(Param& param, const FullTensor& loaded) {
    if (change != LayerChange::tied_not_cut) return Base::weight_loader(param, loaded);
    param = this->backend_->empty("weight", loaded.shape());
    this->backend_->copy(param, 0, 0, loaded, 0, loaded.shape().rows());
  }
  Tensor forward(const std::vector<Index>& ids) {
    const VocabPart& part = this->part_;
    if (change == LayerChange::ids_shifted) {
      const auto mask = this->mask_of(ids, part.first + 1, part.last + 1);
      return this->sum(
          this->backend_->keep_tokens(this->backend_->lookup(this->weight, mask.rows), mask.mine));
    }
    if (change == LayerChange::ids_not_masked) {
      std::vector<Index> rows;
      for (const Index id : ids) rows.push_back(id - part.first);
      return this->sum(this->backend_->lookup(this->weight, rows));
    }
    if (change == LayerChange::ids_not_zeroed)
      return this->sum(
          this->backend_->lookup(this->weight, this->mask_of(ids, part.first, part.last).rows));
    return Base::forward(ids);
  }
};

template <class B>
struct FaultyHead : ParallelLMHead<B> {
  using Base = ParallelLMHead<B>;
  using Base::Base;
  using typename Base::Tensor;
  LayerChange change = LayerChange::none;

  std::optional<Tensor> forward(const Tensor& x) {
    return change == LayerChange::padding_kept ? this->gathered(this->local_logits(x))
                                               : Base::forward(x);
  }
  Tensor argmax(const Tensor& x) {
    const VocabPart& part = this->part_;
    const bool padding = change == LayerChange::argmax_of_padding;
    const Tensor y =
        this->backend_->slice(this->local_logits(x), 1, 0, padding ? part.rows : part.real());
    Tensor pairs = this->own_best(y, change == LayerChange::argmax_without_start ? 0
                                     : padding ? this->comm_->rank() * part.rows
                                               : part.first);
    if (change == LayerChange::argmax_of_shard) return this->backend_->best_of(pairs);
    return this->best(std::move(pairs));
  }
};

}  // namespace detail

/// The layers in which a LayerChange is possible; with LayerChange::none they are the real ones.
struct FaultyVocabLayers {
  template <class B>
  using Embedding = detail::FaultyEmbedding<B>;
  template <class B>
  using Head = detail::FaultyHead<B>;
};

}  // namespace tpsim
