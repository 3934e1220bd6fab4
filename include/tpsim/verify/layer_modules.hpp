// SPDX-License-Identifier: MIT
// The layers as modules: how a caller builds, loads and calls each of them.
#pragma once

#include <functional>

#include <tpsim/layers/load.hpp>
#include <tpsim/layers/mlp.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>
#include <tpsim/verify/variation.hpp>

namespace tpsim {

/// The classes under test; FaultyLayers (verify/faulty_layers.hpp) puts others in their place.
struct RealLayers {
  template <class B>
  using Replicated = ReplicatedLinear<B>;
  template <class B>
  using Column = ColumnParallelLinear<B>;
  template <class B>
  using Row = RowParallelLinear<B>;
  template <class B>
  using Merged = MergedColumnParallelLinear<B>;
  template <class B>
  using Qkv = QKVParallelLinear<B>;
};

namespace detail {

[[nodiscard]] inline bool is_bias(const DiskTensor& t) { return t.stored->shape.rank() == 1; }

/// Hands a tensor to the weight_loader.
template <class Layer>
void load_into(Layer& layer, const DiskTensor& t) {
  load_tensor(layer, is_bias(t), t.view(), t.layout);
}

/// Tells a layer that can be wrong in which way it is.
template <class Layer>
void apply_change(Layer& layer, LayerChange change) {
  if constexpr (requires { layer.change; }) layer.change = change;
}

/// One linear layer and what its caller does: sums what reduce_results left partial, and adds the
/// bias that skip_bias_add left out.
template <class B, class Layer>
class LinearModule final : public ModuleOn<B> {
 public:
  template <class... Args>
  LinearModule(B& b, Communicator& comm, const LayerSpec& s, LayerChange change, Args&&... args)
      : backend_(&b),
        comm_(&comm),
        prefix_(s.prefix),
        reduce_(!s.reduce_results && s.layer == "row"),
        skip_bias_add_(s.skip_bias_add),
        layer_(b, comm, std::forward<Args>(args)...) {
    apply_change(layer_, change);
  }

  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    std::vector<std::pair<std::string, typename B::Param*>> out{
        {prefix_ + "weight", &layer_.weight}};
    if (layer_.bias) out.emplace_back(prefix_ + "bias", &*layer_.bias);
    return out;
  }
  void load(const DiskTensor& t) override { load_into(layer_, t); }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    typename B::Tensor y = layer_.forward(x);
    if (reduce_ && comm_->size() > 1) y = all_reduce(*backend_, *comm_, std::move(y));
    // A caller that asked for skip_bias_add adds the bias itself, whatever the layer did.
    if (skip_bias_add_ && layer_.bias) {
      const auto* handed_out = layer_.skipped_bias();
      y = backend_->add_bias(y, handed_out != nullptr ? *handed_out : *layer_.bias);
    }
    return y;
  }

 private:
  B* backend_;
  Communicator* comm_;
  std::string prefix_;
  bool reduce_, skip_bias_add_;
  Layer layer_;
};

template <class B, class Merged, class Row>
class MlpModule final : public ModuleOn<B> {
 public:
  MlpModule(B& b, Communicator& comm, const LayerSpec& s, LayerChange change)
      : mlp_(b, comm, {s.qkv.hidden, s.intermediate, s.bias}) {
    apply_change(mlp_.gate_up_proj, change);
    apply_change(mlp_.down_proj, change);
  }
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    std::vector<std::pair<std::string, typename B::Param*>> out;
    const auto add = [&](const std::string& prefix, auto& layer) {
      out.emplace_back(prefix + "weight", &layer.weight);
      if (layer.bias) out.emplace_back(prefix + "bias", &*layer.bias);
    };
    add("gate_up_proj.", mlp_.gate_up_proj);
    add("down_proj.", mlp_.down_proj);
    return out;
  }
  void load(const DiskTensor& t) override {
    if (t.param.starts_with("down_proj."))
      load_into(mlp_.down_proj, t);
    else
      load_into(mlp_.gate_up_proj, t);
  }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return mlp_.forward(x);
  }
  [[nodiscard]] typename B::Tensor forward_part(std::size_t part,
                                                const typename B::Tensor& x) override {
    return part == 0 ? mlp_.gate_up_proj.forward(x) : mlp_.down_proj.forward(x);
  }

 private:
  GatedMLP<B, Row, Merged> mlp_;
};

/// A module whose loader is given other tensors than the checkpoint's.
template <class B>
class MisledModule final : public ModuleOn<B> {
 public:
  using Mislead = std::function<std::optional<DiskTensor>(const DiskTensor&, const Subject&)>;
  MisledModule(std::unique_ptr<ModuleOn<B>> module, const Subject& subject, Mislead mislead)
      : module_(std::move(module)), subject_(&subject), mislead_(std::move(mislead)) {}
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    return module_->params();
  }
  void load(const DiskTensor& t) override {
    if (const std::optional<DiskTensor> other = mislead_(t, *subject_)) module_->load(*other);
  }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return module_->forward(x);
  }
  [[nodiscard]] typename B::Tensor forward_part(std::size_t part,
                                                const typename B::Tensor& x) override {
    return module_->forward_part(part, x);
  }

 private:
  std::unique_ptr<ModuleOn<B>> module_;
  const Subject* subject_;
  Mislead mislead_;
};

/// The module, its loader led astray where the variation does so.
template <class B>
[[nodiscard]] std::unique_ptr<ModuleOn<B>> misled(std::unique_ptr<ModuleOn<B>> module,
                                                  const Subject& subject, const Variation& v) {
  if (!v.before_load) return module;
  return std::make_unique<MisledModule<B>>(std::move(module), subject, v.before_load);
}

template <class Layers, class B>
[[nodiscard]] std::unique_ptr<ModuleOn<B>> make_module(B& b, Communicator& comm, const LayerSpec& s,
                                                       LayerChange change = LayerChange::none) {
  using Row = typename Layers::template Row<B>;
  using Merged = typename Layers::template Merged<B>;
  const ColumnOptions column{s.bias, s.skip_bias_add, s.gather_output};
  const LinearOptions plain{s.bias, s.skip_bias_add};
  if (s.layer == "column")
    return std::make_unique<LinearModule<B, typename Layers::template Column<B>>>(
        b, comm, s, change, s.in, s.out, column);
  if (s.layer == "row")
    return std::make_unique<LinearModule<B, Row>>(
        b, comm, s, change, s.in, s.out,
        RowOptions{s.bias, s.skip_bias_add, s.input_is_parallel, s.reduce_results});
  if (s.layer == "merged")
    return std::make_unique<LinearModule<B, Merged>>(b, comm, s, change, s.in, s.parts, column);
  if (s.layer == "qkv")
    return std::make_unique<LinearModule<B, typename Layers::template Qkv<B>>>(b, comm, s, change,
                                                                               s.qkv, plain);
  if (s.layer == "mlp") return std::make_unique<MlpModule<B, Merged, Row>>(b, comm, s, change);
  return std::make_unique<LinearModule<B, typename Layers::template Replicated<B>>>(
      b, comm, s, change, s.in, s.out, plain);
}

}  // namespace detail
}  // namespace tpsim
