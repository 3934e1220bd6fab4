// SPDX-License-Identifier: MIT
// The layers as modules: how a caller builds, loads and calls each of them.
#pragma once

#include <functional>

#include <tpsim/layers/mlp.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// The classes under test. A fault replaces one of them (verify/faults.hpp).
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

/// Hands a tensor to the weight_loader, as an engine's model file does: the shard id for a separate
/// part, the layout for a fused tensor, nothing for a plain layer.
template <class Layer>
void load_into(Layer& layer, const DiskTensor& t) {
  if (is_bias(t) && !layer.bias)
    throw LayoutError("the layer has no bias for " + t.stored->name,
                      {{"names", "unexpected tensor"}});
  auto& param = is_bias(t) ? *layer.bias : layer.weight;
  if constexpr (requires { layer.weight_loader(param, t.view(), t.layout); }) {
    if (t.layout.parts().size() == 1)
      layer.weight_loader(param, t.view(), t.layout.parts()[0].label);
    else
      layer.weight_loader(param, t.view(), t.layout);
  } else {
    layer.weight_loader(param, t.view());
  }
}

/// One linear layer and what its caller does: sums what reduce_results left partial, and adds the
/// bias that skip_bias_add left out.
template <class B, class Layer>
class LinearModule final : public ModuleOn<B> {
 public:
  template <class... Args>
  LinearModule(B& b, Communicator& comm, const LayerSpec& s, Args&&... args)
      : backend_(&b),
        comm_(&comm),
        prefix_(s.prefix),
        reduce_(!s.reduce_results && s.layer == "row"),
        skip_bias_add_(s.skip_bias_add),
        layer_(b, comm, std::forward<Args>(args)...) {}

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

template <class B, class Row>
class MlpModule final : public ModuleOn<B> {
 public:
  MlpModule(B& b, Communicator& comm, const LayerSpec& s)
      : mlp_(b, comm, {s.qkv.hidden, s.intermediate, s.bias}) {}
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

 private:
  GatedMLP<B, Row> mlp_;
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

 private:
  std::unique_ptr<ModuleOn<B>> module_;
  const Subject* subject_;
  Mislead mislead_;
};

template <class Layers, class B>
[[nodiscard]] std::unique_ptr<ModuleOn<B>> make_module(B& b, Communicator& comm,
                                                       const LayerSpec& s) {
  const ColumnOptions column{s.bias, s.skip_bias_add, s.gather_output};
  const LinearOptions plain{s.bias, s.skip_bias_add};
  if (s.layer == "column")
    return std::make_unique<LinearModule<B, typename Layers::template Column<B>>>(b, comm, s, s.in,
                                                                                  s.out, column);
  if (s.layer == "row")
    return std::make_unique<LinearModule<B, typename Layers::template Row<B>>>(
        b, comm, s, s.in, s.out,
        RowOptions{s.bias, s.skip_bias_add, s.input_is_parallel, s.reduce_results});
  if (s.layer == "merged")
    return std::make_unique<LinearModule<B, typename Layers::template Merged<B>>>(b, comm, s, s.in,
                                                                                  s.parts, column);
  if (s.layer == "qkv")
    return std::make_unique<LinearModule<B, typename Layers::template Qkv<B>>>(b, comm, s, s.qkv,
                                                                               plain);
  if (s.layer == "mlp")
    return std::make_unique<MlpModule<B, typename Layers::template Row<B>>>(b, comm, s);
  return std::make_unique<LinearModule<B, typename Layers::template Replicated<B>>>(
      b, comm, s, s.in, s.out, plain);
}

}  // namespace detail
}  // namespace tpsim
