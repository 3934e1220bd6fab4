// SPDX-License-Identifier: MIT
// One learned number for each query head: an attention sink.
#pragma once

#include <tpsim/layers/norm.hpp>

namespace tpsim {

/// @pre  heads divide by tp                                                        (divide)
/// @post rank r holds the entries [r heads/tp, (r+1) heads/tp), those of its heads (partners)
/// Source: vLLM `models/gpt_oss.py`, sinks.
template <DecoderBackend B>
class HeadVector {
 public:
  using Param = typename B::Param;

  Param weight;  ///< [heads / tp]

  HeadVector(B& backend, Communicator& tp, Index heads)
      : weight(backend.empty("weight", Shape(divide(heads, tp.size())))),
        backend_(&backend),
        heads_(heads),
        tp_rank_(tp.rank()) {}

  /// `loaded` is [heads].
  void weight_loader(Param& param, const FullTensor& loaded) {
    const Index shard = backend_->shape(param).rows();
    require_shape(loaded, Shape(heads_));
    backend_->copy(param, 0, 0, loaded, tp_rank_ * shard, shard);
  }

 protected:
  B* backend_;
  Index heads_;
  int tp_rank_;
};

}  // namespace tpsim
