// SPDX-License-Identifier: MIT
// The linear family and the gated MLP as subjects: which tensors a checkpoint has for them, what
// each rank must hold and return, and the code under test.
#pragma once

#include <tpsim/layers/mlp.hpp>
#include <tpsim/verify/declare.hpp>
#include <tpsim/verify/decoder_subject.hpp>
#include <tpsim/verify/layer_modules.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/linear_part.hpp>
#include <tpsim/verify/subject.hpp>
#include <tpsim/verify/variation.hpp>
#include <tpsim/verify/vocab_subjects.hpp>

namespace tpsim {

/// @tparam Layers  which classes are under test (RealLayers, or FaultyLayers for a LayerChange)
template <class Layers = RealLayers>
class LinearSubject final : public SubjectOf<LinearSubject<Layers>> {
 public:
  explicit LinearSubject(LayerSpec spec, Variation variation = {})
      : spec_(std::move(spec)), variation_(std::move(variation)) {
    this->layer = spec_.layer;
    this->tp = spec_.tp;
    this->tokens = spec_.tokens;
    detail::declare(*this, spec_);
  }
  [[nodiscard]] std::unique_ptr<Communicator> between(Communicator& world) const override {
    return variation_.between ? variation_.between(world) : nullptr;
  }
  [[nodiscard]] std::vector<std::unique_ptr<Subject>> linear_parts() const override {
    if (spec_.layer != "mlp") return {};
    const std::vector<DeclaredPart>& merged = this->params.front().parts;
    auto gate_up = std::make_unique<LinearPart>(*this, 0, "gate_up_proj.",
                                                std::vector<std::string>{"gate_proj.", "up_proj."});
    gate_up->input_width = this->input_width;
    gate_up->input_columns = this->input_columns;
    for (std::size_t k = 0; k < merged.size(); ++k) gate_up->outputs.push_back({k, merged[k].rows});
    auto down = std::make_unique<LinearPart>(*this, 1, "down_proj.",
                                             std::vector<std::string>{"down_proj."});
    down->input_width = spec_.intermediate;
    down->input_columns = down->params.front().parts.front().cols;
    down->outputs = this->outputs;
    std::vector<std::unique_ptr<Subject>> parts;
    parts.push_back(std::move(gate_up));
    parts.push_back(std::move(down));
    return parts;
  }

  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    auto made = detail::make_module<Layers>(
        b, comm, variation_.misbuild ? variation_.misbuild(spec_) : spec_, variation_.layer);
    return detail::misled(std::move(made), *this, variation_);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    if (spec_.layer == "qkv") return QKVParallelLinear<B>::full(b, x, t);
    if (spec_.layer == "merged") return MergedColumnParallelLinear<B>::full(b, x, t, spec_.parts);
    std::vector<typename B::Tensor> one;
    if (spec_.layer == "mlp")
      one.push_back(GatedMLP<B>::full(b, x, t));
    else if (spec_.layer == "row")
      one.push_back(RowParallelLinear<B>::full(b, x, t));
    else if (spec_.layer == "column")
      one.push_back(ColumnParallelLinear<B>::full(b, x, t));
    else
      one.push_back(ReplicatedLinear<B>::full(b, x, t));
    return one;
  }

 private:
  LayerSpec spec_;
  Variation variation_;
};

/// The subject that a spec asks for. @throws LayoutError with every violated rule and the legal tp
/// (A template so that it compiles every layer on every backend only where it is called.)
template <class = void>
[[nodiscard]] std::unique_ptr<Subject> make_subject(const LayerSpec& spec) {
  require_legal(spec);
  if (is_vocab_layer(spec.layer)) return std::make_unique<VocabSubject<>>(spec);
  if (is_decoder_layer(spec.layer)) return make_decoder_subject(spec);
  return std::make_unique<LinearSubject<>>(spec);
}

}  // namespace tpsim
