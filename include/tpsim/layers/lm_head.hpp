// SPDX-License-Identifier: MIT
// The head that makes logits, its rows cut over the vocabulary like the embedding's table.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/collectives.hpp>
#include <tpsim/layers/batch.hpp>
#include <tpsim/layers/vocab_options.hpp>

namespace tpsim {

struct HeadOptions {
  bool bias = false;
  bool gather_to_all = false;  ///< all_gather: every rank gets the logits, not rank 0 alone
};

/// The last token of each sequence of a step: x [tokens, columns] -> [sequences, columns]. Of a
/// prefill the head multiplies no others.
/// Source: nano-vllm `layers/embed_head.py` (cu_seqlens_q[1:] - 1).
template <Backend B>
[[nodiscard]] typename B::Tensor last_tokens(B& b, const typename B::Tensor& x,
                                             const Batch& batch) {
  std::vector<typename B::Tensor> rows;
  for (const Index row : batch.last_tokens()) rows.push_back(b.slice(x, 0, row, 1));
  return join_tokens(b, std::move(rows));
}

/// logits = x W^T with the rows of W cut; the ranks' columns are gathered, and the columns of the
/// padding are cut off before anybody reads them (of padding with zeros a logit is 0, and 0 wins
/// over negative ones).
/// @pre  the padded vocabulary divides by tp                       (divide)
/// @post every row of W and of the bias is on exactly one rank     (cover)
/// @post the logits are vocab columns, in the order of the ids     (state)
/// Source: nano-vllm `layers/embed_head.py`; vLLM `logits_processor.py`.
template <VocabBackend B>
class ParallelLMHead {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  std::optional<Param> weight;  ///< [padded / tp, hidden]; nothing when tied
  std::optional<Param> bias;    ///< [padded / tp]

  /// @param tied  the embedding's table on this rank, which must outlive the head; null: the head
  ///   has a weight of its own
  ParallelLMHead(B& backend, Communicator& tp, const VocabShape& s, HeadOptions o = {},
                 const Param* tied = nullptr)
      : backend_(&backend), comm_(&tp), tied_(tied), shape_(s), gather_to_all_(o.gather_to_all) {
    require(vocab_violations(s, tp.size()));
    part_ = vocab_part(s, tp.size(), tp.rank());
    if (tied_ == nullptr) weight = backend.empty("weight", Shape(part_.rows, s.hidden));
    if (o.bias) bias = backend.empty("bias", Shape(part_.rows));
  }

  /// `loaded` is [vocab, hidden], or [vocab] for the bias, without padding.
  void weight_loader(Param& param, const FullTensor& loaded) {
    load_vocab_rows(*backend_, param, loaded, shape_, part_);
  }
  /// x [tokens, hidden], replicated -> logits [tokens, vocab]; nothing on ranks that get none
  [[nodiscard]] std::optional<Tensor> forward(const Tensor& x) {
    std::optional<Tensor> y = gathered(local_logits(x));
    if (y) y = backend_->slice(*y, 1, 0, shape_.vocab);
    return y;
  }

  /// The token that each of x's tokens is followed by: x [tokens, hidden], replicated -> ids
  /// [tokens, 1], the same on every rank. No logits are gathered: a rank sends of each token its
  /// greatest logit and that one's id, and ranks of padding alone send a pair that always loses. Of
  /// equal logits the smallest id is chosen, at every tp.
  /// @post one all_gather of [tokens, 2]                              (collectives)
  /// @throws LayoutError (names) for a vocabulary of more than 2^24 rows: see BackendHasArgmax
  [[nodiscard]] Tensor argmax(const Tensor& x)
    requires BackendHasArgmax<B>
  {
    return best(own_best(backend_->slice(local_logits(x), 1, 0, part_.real()), part_.first));
  }

  /// As argmax(): weight [vocab, hidden], bias [vocab] or null -> ids [tokens, 1]
  [[nodiscard]] static Tensor full_argmax(B& b, const Tensor& x, const Param& weight,
                                          const Param* bias)
    requires BackendHasArgmax<B>
  {
    return b.best_of(b.largest(full(b, x, weight, bias), 0));
  }
  /// weight [vocab, hidden], bias [vocab] or null -> logits [tokens, vocab]
  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const Param& weight, const Param* bias) {
    Tensor y = b.linear(x, weight);
    return bias != nullptr ? b.add_bias(y, *bias) : std::move(y);
  }

 protected:
  /// [tokens, padded / tp]
  [[nodiscard]] Tensor local_logits(const Tensor& x) {
    Tensor y = backend_->linear(x, tied_ != nullptr ? *tied_ : *weight);
    return bias ? backend_->add_bias(y, *bias) : std::move(y);
  }
  /// Pairs [tokens, 2]. @param y  [tokens, columns] with the ids from first_id on
  [[nodiscard]] Tensor own_best(const Tensor& y, Index first_id) {
    require_ids_exact(0, shape_.vocab);  // on every rank, before any of them waits
    return backend_->largest(y, first_id);
  }
  /// Of all ranks' pairs.
  [[nodiscard]] Tensor best(Tensor pairs) {
    if (comm_->size() > 1) pairs = all_gather(*backend_, *comm_, std::move(pairs));
    return backend_->best_of(pairs);
  }
  /// [tokens, padded] where it is wanted
  [[nodiscard]] std::optional<Tensor> gathered(Tensor y) {
    if (comm_->size() == 1) return y;
    if (gather_to_all_) return all_gather(*backend_, *comm_, std::move(y));
    return gather(*backend_, *comm_, std::move(y), 0);
  }

  B* backend_;
  Communicator* comm_;
  const Param* tied_;
  VocabShape shape_;
  VocabPart part_;
  bool gather_to_all_;
};

}  // namespace tpsim
