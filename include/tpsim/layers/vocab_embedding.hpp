// SPDX-License-Identifier: MIT
// The embedding of token ids, its table cut over the vocabulary.
//
// A rank looks up the ids that it holds and leaves zeros for the others; the sum over the ranks
// has every row once. Token ids are integers that every rank knows: the layer may look at them.
#pragma once

#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/layers/vocab_options.hpp>

namespace tpsim {

/// Rank r holds the rows [r padded/tp, (r+1) padded/tp) of the table; rows past the vocabulary are
/// zeros or copies of its last row, which no id reads.
/// @pre  the padded vocabulary divides by tp                         (divide)
/// @post every row of the table is on exactly one rank               (cover)
/// @post one all_reduce makes the result whole on all ranks          (state)
/// Source: nano-vllm `layers/embed_head.py`; padding as in vLLM `vocab_parallel_embedding.py`.
template <VocabBackend B>
class VocabParallelEmbedding {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  Param weight;  ///< [padded / tp, hidden]

  VocabParallelEmbedding(B& backend, Communicator& tp, const VocabShape& s)
      : weight(backend.empty("weight", (require(vocab_violations(s, tp.size())),
                                        Shape(padded_vocab(s, tp.size()) / tp.size(), s.hidden)))),
        backend_(&backend),
        comm_(&tp),
        shape_(s),
        part_(vocab_part(s, tp.size(), tp.rank())) {}

  /// `loaded` is [vocab, hidden], without padding.
  void weight_loader(Param& param, const FullTensor& loaded) {
    load_vocab_rows(*backend_, param, loaded, shape_, part_);
  }
  /// ids [tokens] -> [tokens, hidden], replicated.
  /// @throws LayoutError (names) for an id outside the vocabulary
  [[nodiscard]] Tensor forward(const std::vector<Index>& ids) {
    require_ids(ids, shape_.vocab);
    const Mask mask = mask_of(ids, part_.first, part_.last);
    return sum(backend_->keep_tokens(backend_->lookup(weight, mask.rows), mask.mine));
  }

  /// table [vocab, hidden] -> row ids[t] for token t.
  [[nodiscard]] static Tensor full(B& b, const std::vector<Index>& ids, const Param& table) {
    return b.lookup(table, ids);
  }

 protected:
  /// Which ids are this rank's, and the local row to read for each: 0 for those that are not.
  struct Mask {
    std::vector<Index> rows;
    std::vector<bool> mine;
  };
  [[nodiscard]] Mask mask_of(const std::vector<Index>& ids, Index first, Index last) const {
    Mask mask;
    for (const Index id : ids) {
      mask.mine.push_back(first <= id && id < last);
      mask.rows.push_back(mask.mine.back() ? id - part_.first : 0);
    }
    return mask;
  }
  [[nodiscard]] Tensor sum(Tensor y) {
    return comm_->size() > 1 ? all_reduce(*backend_, *comm_, std::move(y)) : std::move(y);
  }

  B* backend_;
  Communicator* comm_;
  VocabShape shape_;
  VocabPart part_;
};

}  // namespace tpsim
