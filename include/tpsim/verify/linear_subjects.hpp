// SPDX-License-Identifier: MIT
// The linear family and the gated MLP as subjects: which tensors a checkpoint has for them, what
// each rank must hold and return, and the code under test.
#pragma once

#include <functional>

#include <tpsim/layers/mlp.hpp>
#include <tpsim/verify/declare.hpp>
#include <tpsim/verify/layer_modules.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// A named small change to the code under test; all empty for the real thing.
struct Variation {
  /// What the loader is given instead of a tensor; nullopt: it is never given.
  std::function<std::optional<DiskTensor>(const DiskTensor&, const Subject&)> before_load;
  /// A communicator between the layer and its world.
  std::function<std::unique_ptr<Communicator>(Communicator&)> between;
};

/// @tparam Layers  which classes are under test (RealLayers, or one with a faulty layer)
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

  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    auto made = detail::make_module<Layers>(b, comm, spec_);
    if (!variation_.before_load) return made;
    return std::make_unique<detail::MisledModule<B>>(std::move(made), *this,
                                                     variation_.before_load);
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
[[nodiscard]] inline std::unique_ptr<Subject> make_subject(const LayerSpec& spec) {
  require_legal(spec);
  return std::make_unique<LinearSubject<>>(spec);
}

}  // namespace tpsim
