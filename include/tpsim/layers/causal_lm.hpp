// SPDX-License-Identifier: MIT
// A whole decoder: embedding, layers, norm and head, from token ids to logits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layers/decoder_layer.hpp>
#include <tpsim/layers/lm_head.hpp>
#include <tpsim/layers/vocab_embedding.hpp>

namespace tpsim {

/// Which tokens of a step get logits.
enum class LogitsOf : std::uint8_t { last_tokens, all_tokens };

/// @post one all_reduce for the embedding, two for each layer (one when it is parallel), and one
///   gather (all_gather when every rank wants the logits)  (collectives)
/// Source: nano-vllm `models/qwen3.py` Qwen3ForCausalLM, `engine/model_runner.py`.
template <DecoderBackend B, class Layers = DecoderLayers>
class CausalLM {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;
  using Caches = std::vector<KvCache<B>>;  ///< one for each layer

  VocabParallelEmbedding<B> embed_tokens;
  std::vector<std::unique_ptr<DecoderLayer<B, Layers>>> layers;
  StreamNorm<B> norm;
  std::optional<ParallelLMHead<B>> lm_head;

  CausalLM(B& backend, Communicator& tp, const CausalLMShape& s)
      : embed_tokens(backend, tp, (require(causal_lm_violations(s, tp.size())), s.vocab)),
        norm(backend, tp, s.norm, {s.vocab.hidden, s.norm_eps}),
        backend_(&backend),
        max_positions_(s.max_positions) {
    for (const DecoderShape& layer : s.layers)
      layers.push_back(std::make_unique<DecoderLayer<B, Layers>>(backend, tp, layer));
    lm_head.emplace(backend, tp, s.vocab, HeadOptions{s.head_bias, s.gather_to_all},
                    s.tied ? &embed_tokens.weight : nullptr);
  }
  CausalLM(const CausalLM&) = delete;  // a tied head reads this object's embedding
  CausalLM& operator=(const CausalLM&) = delete;

  /// f(name, layer) for each layer that has parameters: "layers.0.mlp.down_proj.", ...
  template <class F>
  void for_each_layer(F&& f) {
    const auto under = [&](const std::string& prefix) {
      return [&f, prefix](const std::string& name, auto& layer) { f(prefix + name, layer); };
    };
    f("embed_tokens.", embed_tokens);
    for (std::size_t i = 0; i < layers.size(); ++i)
      layers[i]->for_each_layer(under("layers." + std::to_string(i) + "."));
    norm.for_each_layer(under("norm."));
    if (lm_head->weight || lm_head->bias) f("lm_head.", *lm_head);
  }

  [[nodiscard]] Caches make_caches() const {
    Caches caches;
    for (std::size_t i = 0; i < layers.size(); ++i) caches.emplace_back(max_positions_);
    return caches;
  }
  /// ids: those of the batch's new tokens, one after the other. -> logits [sequences, vocab] or
  /// [tokens, vocab]; nothing on ranks that get none.
  /// @throws LayoutError (names) for an unknown id, (cover) for a sequence longer than the cache
  [[nodiscard]] std::optional<Tensor> forward(const std::vector<Index>& ids, const Batch& batch,
                                              Caches& caches,
                                              LogitsOf which = LogitsOf::last_tokens) {
    if (static_cast<Index>(ids.size()) != batch.tokens())
      throw LayoutError("the batch has other tokens than it is given",
                        {{"divide", std::to_string(ids.size()) + " ids for " +
                                        std::to_string(batch.tokens()) + " tokens"}});
    Stream<Tensor> x{embed_tokens.forward(ids)};
    for (std::size_t i = 0; i < layers.size(); ++i)
      x = layers[i]->forward(std::move(x), batch, caches[i]);
    Tensor y = x.update ? norm.forward(backend_->add_unrounded(*x.update, x.residual))
                        : norm.forward(x.residual);
    return lm_head->forward(which == LogitsOf::all_tokens ? std::move(y)
                                                          : last_tokens(*backend_, y, batch));
  }

  /// ids: whole sequences of `lengths`. -> logits of every token [tokens, vocab]. Tensors:
  /// embed_tokens.weight, layers.I. as DecoderLayer names them, norm.weight, lm_head.weight.
  [[nodiscard]] static Tensor full(B& b, const std::vector<Index>& ids,
                                   const std::vector<Index>& lengths, const FullParams<B>& t,
                                   const CausalLMShape& s) {
    const Param& table = t.at("embed_tokens.weight");
    Tensor x = VocabParallelEmbedding<B>::full(b, ids, table);
    for (std::size_t i = 0; i < s.layers.size(); ++i)
      x = DecoderLayer<B>::full(b, x, lengths, t, s.layers[i], "layers." + std::to_string(i) + ".");
    return ParallelLMHead<B>::full(b, StreamNorm<B>::full(b, x, s.norm, s.norm_eps, t, "norm."),
                                   s.tied ? table : t.at("lm_head.weight"),
                                   s.head_bias ? &t.at("lm_head.bias") : nullptr);
  }

 private:
  B* backend_;
  std::optional<Index> max_positions_;
};

}  // namespace tpsim
