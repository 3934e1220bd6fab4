// SPDX-License-Identifier: MIT
// The embedding and the head as subjects: what a checkpoint has for them, which rows of the
// vocabulary each rank must hold, which tokens are looked up, and the code under test.
#pragma once

#include <stdexcept>

#include <tpsim/layers/lm_head.hpp>
#include <tpsim/layers/vocab_embedding.hpp>
#include <tpsim/verify/decoder_steps.hpp>
#include <tpsim/verify/layer_modules.hpp>
#include <tpsim/verify/plan_subject.hpp>

namespace tpsim {

/// The classes under test; FaultyVocabLayers (verify/faults/faulty_vocab.hpp) puts others there.
struct RealVocabLayers {
  template <class B>
  using Embedding = VocabParallelEmbedding<B>;
  template <class B>
  using Head = ParallelLMHead<B>;
};

/// Do the tokens have the first and the last row of every rank that holds any?
/// @param rows  [rank]: rows of the vocabulary that it holds
[[nodiscard]] inline bool covers_border_ids(const std::vector<Index>& ids,
                                            const std::vector<Runs>& rows) {
  const auto has = [&](Index id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
  for (const Runs& mine : rows)
    if (!mine.empty() && !(has(mine[0]) && has(mine[mine.size() - 1]))) return false;
  return true;
}

namespace detail {

/// The first and the last row of every rank, each once and in order (the vocabulary's last id is
/// the neighbour of the first padded row), then others up to `tokens`.
[[nodiscard]] inline std::vector<Index> tokens_at_borders(const std::vector<Runs>& rows,
                                                          Index vocab, Index tokens) {
  std::vector<Index> ids;
  for (const Runs& mine : rows) {
    if (mine.empty()) continue;
    ids.push_back(mine[0]);
    if (mine.size() > 1) ids.push_back(mine[mine.size() - 1]);
  }
  for (Index i = 0; static_cast<Index>(ids.size()) < tokens; ++i)
    ids.push_back(
        static_cast<Index>(mix(static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocab)));
  return ids;
}

template <class B, class Embedding>
class EmbeddingModule final : public ModuleOn<B> {
 public:
  EmbeddingModule(B& b, Communicator& comm, const LayerSpec& s, LayerChange change,
                  const std::vector<Index>& ids)
      : layer_(b, comm, vocab_shape(s)), ids_(&ids) {
    apply_change(layer_, change);
  }
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    return {{"embed_tokens.weight", &layer_.weight}};
  }
  void load(const DiskTensor& t) override { layer_.weight_loader(layer_.weight, t.view()); }
  /// The tokens are ids: x has no columns.
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& /*x*/) override {
    return layer_.forward(*ids_);
  }

 private:
  Embedding layer_;
  const std::vector<Index>* ids_;  // the subject's: every rank looks up the same
};

/// The head, the embedding whose table it shares when it is tied, and its caller, which selects the
/// tokens that get logits.
template <class B, class Head, class Embedding>
class HeadModule final : public ModuleOn<B> {
 public:
  HeadModule(B& b, Communicator& comm, const LayerSpec& s, LayerChange change)
      : backend_(&b), change_(change), argmax_(s.argmax), last_token_(s.last_token) {
    if (s.tied) {
      embedding_.emplace(b, comm, vocab_shape(s));
      apply_change(*embedding_, change);
    }
    head_.emplace(b, comm, vocab_shape(s), HeadOptions{s.bias, s.gather_output},
                  s.tied ? &embedding_->weight : nullptr);
    apply_change(*head_, change);
  }
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    std::vector<std::pair<std::string, typename B::Param*>> out;
    if (embedding_)
      out.emplace_back("embed_tokens.weight", &embedding_->weight);
    else
      out.emplace_back("lm_head.weight", &*head_->weight);
    if (head_->bias) out.emplace_back("lm_head.bias", &*head_->bias);
    return out;
  }
  void load(const DiskTensor& t) override {
    if (is_bias(t))
      head_->weight_loader(*head_->bias, t.view());
    else if (embedding_)
      embedding_->weight_loader(embedding_->weight, t.view());
    else
      head_->weight_loader(*head_->weight, t.view());
  }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return last_token_ && change_ != LayerChange::all_tokens ? logits_of(selected(x))
                                                             : logits_of(x);
  }

 private:
  /// Tokens [sequences, hidden] of a prefill.
  [[nodiscard]] typename B::Tensor selected(const typename B::Tensor& x) {
    const std::vector<Index> lengths = sequence_lengths(backend_->shape(x).rows());
    if (change_ != LayerChange::last_of_batch)
      return last_tokens(*backend_, x, Batch::prefill(lengths));
    const Index last = backend_->shape(x).rows() - 1;
    return take_tokens(*backend_, x, std::vector<Index>(lengths.size(), last));
  }
  [[nodiscard]] typename B::Tensor logits_of(const typename B::Tensor& x) {
    if (argmax_) return head_->argmax(x);
    std::optional<typename B::Tensor> y = head_->forward(x);
    return y ? std::move(*y) : backend_->slice(x, 1, 0, 0);  // no logits here
  }

  B* backend_;
  LayerChange change_;
  bool argmax_, last_token_;
  std::optional<Embedding> embedding_;
  std::optional<Head> head_;
};

}  // namespace detail

/// @tparam Layers  which classes are under test
template <class Layers = RealVocabLayers>
class VocabSubject final : public SubjectOf<VocabSubject<Layers>> {
 public:
  explicit VocabSubject(LayerSpec spec, Variation variation = {})
      : spec_(std::move(spec)), variation_(std::move(variation)) {
    this->layer = spec_.layer;
    this->tp = spec_.tp;
    this->tokens = spec_.tokens;
    const bool head = spec_.layer == "lm_head";
    weight_ = head && !spec_.tied ? "lm_head.weight" : "embed_tokens.weight";
    declare_rows(weight_, weight_, Shape(spec_.vocab, spec_.qkv.hidden));
    if (head && spec_.bias) {
      bias_ = spec_.tied ? "embed_tokens.bias" : "lm_head.bias";  // named after what it is added to
      declare_rows("lm_head.bias", bias_, Shape(spec_.vocab));
      this->partners.push_back({{weight_, 0, 0}, {"lm_head.bias", 0, 0}});
    }
    this->input_width = head ? spec_.qkv.hidden : 0;
    this->input_columns = whole(this->input_width);
    if (head)
      declare_head();
    else
      declare_embedding();
  }
  [[nodiscard]] std::unique_ptr<Communicator> between(Communicator& world) const override {
    return variation_.between ? variation_.between(world) : nullptr;
  }

  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    using Embedding = typename Layers::template Embedding<B>;
    using Head = typename Layers::template Head<B>;
    if (spec_.layer == "embedding")
      return std::make_unique<detail::EmbeddingModule<B, Embedding>>(
          b, comm, spec_, variation_.layer, ids_for<B>());
    return std::make_unique<detail::HeadModule<B, Head, Embedding>>(b, comm, spec_,
                                                                    variation_.layer);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    std::vector<typename B::Tensor> one;
    if (spec_.layer == "embedding")
      one.push_back(VocabParallelEmbedding<B>::full(b, ids_for<B>(), t.at(weight_)));
    else
      one.push_back(full_head(
          b, spec_.last_token ? ends_of_sequences(b, x) : b.slice(x, 1, 0, this->input_width), t));
    return one;
  }

 private:
  template <class B>
  [[nodiscard]] typename B::Tensor full_head(B& b, const typename B::Tensor& x,
                                             const FullParams<B>& t) const {
    const typename B::Param *weight = &t.at(weight_), *bias = spec_.bias ? &t.at(bias_) : nullptr;
    return spec_.argmax ? ParallelLMHead<B>::full_argmax(b, x, *weight, bias)
                        : ParallelLMHead<B>::full(b, x, *weight, bias);
  }
  /// The row before each row where a sequence begins, and the last one.
  template <class B>
  [[nodiscard]] static typename B::Tensor ends_of_sequences(B& b, const typename B::Tensor& x) {
    std::vector<Index> rows;
    Index end = 0;
    for (const Index length : sequence_lengths(b.shape(x).rows()))
      rows.push_back((end += length) - 1);
    return take_tokens(b, x, rows);
  }
  [[nodiscard]] std::vector<Runs> whole(Index n) const {
    return std::vector<Runs>(static_cast<std::size_t>(this->tp), Runs::range(0, n));
  }
  /// A tensor whose rows are the vocabulary's, in a parameter of its own name.
  void declare_rows(const std::string& name, const std::string& logical_name, Shape shape) {
    const auto logical = std::make_shared<LogicalTensor>(logical_name, shape);
    this->tensors.push_back(detail::disk_tensor(name, shape,
                                                RowLayout({{"", Runs::range(0, shape.rows())}}),
                                                {logical}, name, spec_.values));
    DeclaredParam param{name, 0, shape, {{logical, "", {}, whole(shape.cols()), 1, ""}}};
    for (int r = 0; r < this->tp; ++r) {
      const CutResult cut = cut_rows(vocab_cut(spec_), {{"V", spec_.vocab}}, this->tp, r);
      param.parts[0].rows.push_back(cut.rows);
      param.padding.push_back(cut.padding);
      param.fill = cut.fill;
    }
    this->params.push_back(std::move(param));
  }
  void declare_embedding() {
    this->outputs.push_back({0, whole(spec_.qkv.hidden)});
    this->collectives = std::vector<CollectiveOp>(this->tp > 1 ? 1 : 0, CollectiveOp::all_reduce);
    const std::vector<Runs>& rows = this->params[0].parts[0].rows;
    this->token_ids = detail::tokens_at_borders(rows, spec_.vocab, spec_.tokens);
    if (!covers_border_ids(this->token_ids, rows))
      throw std::logic_error("the tokens miss the first or last row of a rank");
    for (Index id = 0; id < spec_.vocab; ++id) every_id_.push_back(id);
  }
  void declare_head() {
    if (spec_.last_token) this->exact_tokens = 6;  // two sequences of unequal length
    if (spec_.argmax) {
      this->chooses = true;
      if (!spec_.last_token) this->exact_tokens = 16;  // a wrong choice may agree by chance
      this->outputs.push_back({0, whole(1)});
      this->collectives = std::vector<CollectiveOp>(this->tp > 1 ? 1 : 0, CollectiveOp::all_gather);
      return;
    }
    std::vector<Runs> columns = whole(spec_.vocab);
    if (!spec_.gather_output)
      for (std::size_t r = 1; r < columns.size(); ++r) columns[r] = Runs();
    this->outputs.push_back({0, std::move(columns)});
    this->collectives = std::vector<CollectiveOp>(
        this->tp > 1 ? 1 : 0,
        spec_.gather_output ? CollectiveOp::all_gather : CollectiveOp::gather);
  }
  /// Without numbers every id is looked up, with numbers those at the ranks' borders.
  template <class B>
  [[nodiscard]] const std::vector<Index>& ids_for() const {
    return std::is_same_v<B, SymbolicBackend> ? every_id_ : this->token_ids;
  }

  LayerSpec spec_;
  Variation variation_;
  std::string weight_, bias_;  ///< logical tensors
  std::vector<Index> every_id_;
};

}  // namespace tpsim
