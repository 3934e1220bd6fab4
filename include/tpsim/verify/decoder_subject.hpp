// SPDX-License-Identifier: MIT
// A decoder layer as a subject, and its attention or norm alone.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/verify/decoder_modules.hpp>
#include <tpsim/verify/decoder_plan.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/linear_part.hpp>
#include <tpsim/verify/plan_subject.hpp>
#include <tpsim/verify/variation.hpp>

namespace tpsim {

/// The classes under test.
struct RealDecoderLayers : DecoderLayers {
  template <class B>
  using HeadNorm = ParallelRMSNorm<B>;
};

/// @tparam Layers  which classes are under test
template <class Layers = RealDecoderLayers>
class DecoderSubject final : public SubjectOf<DecoderSubject<Layers>> {
 public:
  /// @param plan  how the checkpoint stores the tensors, under the parameters' names here; the
  ///   logical tensors have the names that full() reads
  /// @pre  decoder_violations(shape, tp_size) is empty, and the plan is legal there; `batch` tokens
  DecoderSubject(DecoderPart part, DecoderShape shape, const BoundPlan& plan, int tp_size,
                 Index batch, DecoderSteps steps = {}, const TensorValues& values = {},
                 Variation variation = {})
      : part_(part), shape_(std::move(shape)), steps_(steps), variation_(std::move(variation)) {
    declare_plan(*this, plan, tp_size, batch, values);
    this->exact_tokens = 8;  // two sequences, the longer one longer than a small window
    this->first_stage_is_input = false;
    repeat_collectives();
  }
  [[nodiscard]] std::unique_ptr<Communicator> between(Communicator& world) const override {
    return variation_.between ? variation_.between(world) : nullptr;
  }
  [[nodiscard]] std::vector<std::unique_ptr<Subject>> linear_parts() const override {
    std::vector<std::unique_ptr<Subject>> out;
    if (part_ == DecoderPart::norm) return out;
    const std::string at = part_ == DecoderPart::layer ? "self_attn." : "", mlp = "mlp.";
    column(out, at + "qkv_proj.", {at + "q_proj.", at + "k_proj.", at + "v_proj."});
    row(out, at + "o_proj.");
    if (part_ == DecoderPart::attention) return out;
    if (shape_.gated)
      column(out, mlp + "gate_up_proj.", {mlp + "gate_proj.", mlp + "up_proj."});
    else
      column(out, mlp + "up_proj.", {mlp + "up_proj."});
    row(out, mlp + "down_proj.");
    return out;
  }

  [[nodiscard]] std::vector<std::vector<Index>> passes(Index count) const override {
    std::vector<std::vector<Index>> out;
    for (StepRows& step : steps_of(sequence_lengths(count), steps_))
      out.push_back(std::move(step.rows));
    return out;
  }

  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    return detail::misled(net<B>(b, comm), *this, variation_);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    const std::vector<Index> lengths = sequence_lengths(b.shape(x).rows());
    std::vector<typename B::Tensor> one;
    if (part_ == DecoderPart::layer)
      one.push_back(DecoderLayer<B>::full(b, x, lengths, t, shape_));
    else if (part_ == DecoderPart::attention)
      one.push_back(ParallelAttention<B>::full(b, x, lengths, t, shape_.attention));
    else if (shape_.attention.qk_norm == QkNorm::full_width)
      one.push_back(ParallelRMSNorm<B>::full(b, x, t.at("weight"), shape_.attention.norm_eps));
    else
      one.push_back(StreamNorm<B>::full(b, x, shape_.norm, shape_.norm_eps, t, ""));
    return one;
  }

 private:
  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> net(B& b, Communicator& comm) const {
    const LayerChange change = variation_.layer;
    const DecoderShape shape = built_as();
    using HeadNorm = typename Layers::template HeadNorm<B>;
    if (part_ == DecoderPart::layer)
      return std::make_unique<detail::NetModule<B, DecoderLayer<B, Layers>>>(b, comm, steps_,
                                                                             change, shape);
    if (part_ == DecoderPart::attention)
      return std::make_unique<detail::NetModule<B, typename Layers::template Attention<B>>>(
          b, comm, steps_, change, shape.attention);
    if (shape.attention.qk_norm == QkNorm::full_width)
      return std::make_unique<detail::NetModule<B, detail::LoneHeadNorm<B, HeadNorm>>>(
          b, comm, steps_, change, shape);
    return std::make_unique<detail::NetModule<B, detail::LoneNorm<B>>>(b, comm, steps_, change,
                                                                       shape);
  }
  /// The sizes that the code is built with, which a variation may change.
  [[nodiscard]] DecoderShape built_as() const {
    if (!variation_.misbuild) return shape_;
    LayerSpec spec;
    spec.layer = this->layer, spec.tp = this->tp, spec.tokens = this->tokens;
    spec.qkv = shape_.attention.qkv, spec.intermediate = shape_.intermediate;
    spec.decoder = shape_;
    return decoder_shape(variation_.misbuild(spec));
  }
  /// A plan tells the collectives of one step.
  void repeat_collectives() {
    if (!this->collectives) return;
    const std::vector<CollectiveOp> once = *this->collectives;
    const std::size_t steps = steps_of(sequence_lengths(this->tokens), steps_).size();
    for (std::size_t s = 1; s < steps; ++s)
      this->collectives->insert(this->collectives->end(), once.begin(), once.end());
  }

  [[nodiscard]] const DeclaredParam& weight_of(const LinearPart& part) const {
    for (const DeclaredParam& p : part.params)
      if (p.full_shape.rank() == 2) return p;
    throw std::logic_error(part.layer + " has no weight");
  }
  [[nodiscard]] std::vector<Runs> whole(Index n) const {
    return std::vector<Runs>(static_cast<std::size_t>(this->tp), Runs::range(0, n));
  }
  void column(std::vector<std::unique_ptr<Subject>>& out, const std::string& param,
              std::vector<std::string> prefixes) const {
    auto part = std::make_unique<LinearPart>(*this, out.size(), param, std::move(prefixes));
    part->input_width = shape_.hidden();
    part->input_columns = whole(shape_.hidden());
    const DeclaredParam& weight = weight_of(*part);
    for (std::size_t k = 0; k < weight.parts.size(); ++k)
      part->outputs.push_back({k, weight.parts[k].rows});
    out.push_back(std::move(part));
  }
  void row(std::vector<std::unique_ptr<Subject>>& out, const std::string& param) const {
    auto part = std::make_unique<LinearPart>(*this, out.size(), param, std::vector{param});
    const DeclaredParam& weight = weight_of(*part);
    part->input_width = weight.parts.front().tensor->shape.cols();
    part->input_columns = weight.parts.front().cols;
    part->outputs.push_back({0, whole(shape_.hidden())});
    out.push_back(std::move(part));
  }

  DecoderPart part_;
  DecoderShape shape_;
  DecoderSteps steps_;
  Variation variation_;
};

/// The decoder layer, attention or norm that a spec asks for, its tensors apart on disk.
/// @pre  violations(spec) is empty
template <class Layers = RealDecoderLayers>
[[nodiscard]] std::unique_ptr<Subject> make_decoder_subject(const LayerSpec& s,
                                                            Variation variation = {}) {
  const DecoderPart part = s.layer == "norm"        ? DecoderPart::norm
                           : s.layer == "attention" ? DecoderPart::attention
                                                    : DecoderPart::layer;
  DecoderShape shape = decoder_shape(s);
  const BoundPlan plan = bind_plan(decoder_plan(shape, part));
  return std::make_unique<DecoderSubject<Layers>>(part, std::move(shape), plan, s.tp, s.tokens,
                                                  DecoderSteps{s.chunk}, s.values,
                                                  std::move(variation));
}

}  // namespace tpsim
