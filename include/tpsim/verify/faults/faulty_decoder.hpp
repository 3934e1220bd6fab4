// SPDX-License-Identifier: MIT
// Attention, its norms and its per-head vectors with one fault each: the real class, and the few
// lines that are wrong.
#pragma once

#include <utility>
#include <vector>

#include <tpsim/verify/decoder_subject.hpp>
#include <tpsim/verify/faults/faulty_layers.hpp>

namespace tpsim {
namespace detail {

/// A norm over all heads whose statistics, or whose weight, are not those of all heads.
template <class B>
struct FaultyHeadNorm : ParallelRMSNorm<B> {
  using Base = ParallelRMSNorm<B>;
  using Base::Base;
  using typename Base::Param, typename Base::Tensor;
  LayerChange change = LayerChange::none;

  void weight_loader(Param& param, const FullTensor& loaded) {
    if (change != LayerChange::norm_cut_by_rank) return Base::weight_loader(param, loaded);
    // Past the last head the loader clamps, as a slice does.
    const Index shard = this->backend_->shape(param).rows();
    const Index last = loaded.shape().rows() - shard;
    this->backend_->copy(param, 0, 0, loaded, std::min(this->comm_->rank() * shard, last), shard);
  }

 protected:
  [[nodiscard]] Tensor normalized(const Tensor& x) override {
    const Index local = this->backend_->shape(x).cols();
    const Index width = this->shape_.heads * this->shape_.head_dim;
    if (change == LayerChange::squares_not_shared)
      return this->backend_->rms_normalized(x, this->backend_->square_sums(x, local), local,
                                            this->shape_.eps);
    if (change == LayerChange::squares_over_local_width)
      return this->backend_->rms_normalized(x, shared(this->backend_->square_sums(x, width)), local,
                                            this->shape_.eps);
    return Base::normalized(x);
  }
  [[nodiscard]] Tensor shared(Tensor squares) override {
    if (change != LayerChange::squares_of_replicas || this->comm_->size() == 1)
      return Base::shared(std::move(squares));
    return all_reduce(*this->backend_, *this->comm_, std::move(squares));
  }
};

/// Norms of single heads, whose squares are summed over the ranks as those of all heads would be.
template <class B>
struct FaultyOneHeadNorm : RMSNorm<B> {
  using Base = RMSNorm<B>;
  using typename Base::Tensor;
  LayerChange change = LayerChange::none;

  FaultyOneHeadNorm(B& backend, Communicator& tp, const NormShape& s)
      : Base(backend, tp, s), comm_(&tp) {}
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    if (change != LayerChange::head_norm_shared || comm_->size() == 1) return Base::forward(x);
    B& b = *this->backend_;
    const NormShape& s = this->shape_;
    const Tensor squares = all_reduce(b, *comm_, b.square_sums(x, s.width));
    return b.mul_columns(b.rms_normalized(x, squares, s.width * comm_->size(), s.eps),
                         this->weight);
  }

 private:
  Communicator* comm_;
};

/// A per-head vector of which every rank takes the first part.
template <class B>
struct FaultyHeadVector : HeadVector<B> {
  using Base = HeadVector<B>;
  using Base::Base;
  using typename Base::Param;
  LayerChange change = LayerChange::none;

  void weight_loader(Param& param, const FullTensor& loaded) {
    if (change != LayerChange::head_vector_first) return Base::weight_loader(param, loaded);
    this->backend_->copy(param, 0, 0, loaded, 0, this->backend_->shape(param).rows());
  }
};

/// Attention whose numbers are those of the rank where the model's belong, or the reverse.
template <class B, class Base>
struct FaultyAttention : Base {
  using Base::Base;
  LayerChange change = LayerChange::none;

 protected:
  [[nodiscard]] std::vector<Index> positions(const Batch& batch) const override {
    std::vector<Index> out = Base::positions(batch);
    if (change != LayerChange::positions_restart) return out;
    out.clear();
    for (const SequenceStep& s : batch.steps())
      for (Index t = 0; t < s.tokens; ++t) out.push_back(t);
    return out;
  }
  [[nodiscard]] AttentionSpec spec(const SequenceStep& step) const override {
    AttentionSpec s = Base::spec(step);
    if (change == LayerChange::scaled_by_rank_width) s.scale_dim = s.heads * s.head_dim;
    if (change == LayerChange::window_one_longer && s.window) ++*s.window;
    if (change == LayerChange::slopes_of_local_heads && s.alibi) s.alibi = Alibi{0, s.heads};
    if (change == LayerChange::slopes_from_head_zero && s.alibi) s.alibi->first_head = 0;
    return s;
  }
};

}  // namespace detail

/// The layers in which a LayerChange is possible; with LayerChange::none they are the real ones.
struct FaultyDecoderLayers {
  template <class B>
  using HeadNorm = detail::FaultyHeadNorm<B>;
  template <class B>
  using OneHeadNorm = detail::FaultyOneHeadNorm<B>;
  template <class B>
  using HeadVector = detail::FaultyHeadVector<B>;
  template <class B>
  using Qkv = FaultyLayers::Qkv<B>;
  template <class B>
  using Row = FaultyLayers::Row<B>;
  template <class B>
  using Attention = detail::FaultyAttention<B, ParallelAttention<B, FaultyDecoderLayers>>;
  template <class B>
  using Gated = GatedMLP<B, FaultyLayers::Row<B>, FaultyLayers::Merged<B>>;
  template <class B>
  using Plain = PlainMLP<B, FaultyLayers::Row<B>, FaultyLayers::Column<B>>;
};

}  // namespace tpsim
