// SPDX-License-Identifier: MIT
// A decoder layer, its attention and its norm as modules: built, loaded, and called step by step.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layers/decoder_layer.hpp>
#include <tpsim/verify/decoder_plan.hpp>
#include <tpsim/verify/decoder_steps.hpp>
#include <tpsim/verify/layer_modules.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim::detail {

/// Net: a layer with for_each_layer(f) and forward(x, batch, cache).
template <class B, class Net>
class NetModule : public ModuleOn<B> {
 public:
  using Tensor = typename B::Tensor;

  template <class... Args>
  NetModule(B& b, Communicator& comm, DecoderSteps steps, LayerChange change, Args&&... args)
      : net_(b, comm, std::forward<Args>(args)...), backend_(&b), comm_(&comm), steps_(steps) {
    apply_change(net_, change);
    if constexpr (requires { net_.self_attn; }) apply_change(net_.self_attn, change);
    net_.for_each_layer([&](const std::string&, auto& layer) { apply_change(layer, change); });
  }
  [[nodiscard]] std::vector<std::pair<std::string, typename B::Param*>> params() override {
    std::vector<std::pair<std::string, typename B::Param*>> out;
    net_.for_each_layer([&](const std::string& prefix, auto& layer) {
      for_each_param(prefix, layer, [&](const std::string& name, typename B::Param& param) {
        out.emplace_back(name, &param);
      });
    });
    return out;
  }
  void load(const DiskTensor& t) override {
    bool found = false;
    net_.for_each_layer([&](const std::string& prefix, auto& layer) {
      if (t.param != prefix + "weight" && t.param != prefix + "bias") return;
      load_tensor(layer, t.param == prefix + "bias", t.view(), t.layout);
      found = true;
    });
    if (!found)
      throw LayoutError("no layer has the parameter " + t.param, {{"names", "unexpected tensor"}});
  }
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    KvCache<B> cache;
    const std::vector<StepRows> steps =
        steps_of(sequence_lengths(backend_->shape(x).rows()), steps_);
    if (steps.size() == 1) return step(whole(x), steps[0].batch, cache);
    std::vector<Tensor> results;
    std::vector<Index> place(static_cast<std::size_t>(backend_->shape(x).rows()));
    Index next = 0;
    for (const StepRows& s : steps) {
      results.push_back(step(take_tokens(*backend_, x, s.rows), s.batch, cache));
      for (const Index row : s.rows) place[static_cast<std::size_t>(row)] = next++;
    }
    return take_tokens(*backend_, join_tokens(*backend_, std::move(results)), place);
  }
  /// Linear layer `part` in the order of their products, summed and with its bias.
  [[nodiscard]] Tensor forward_part(std::size_t part, const Tensor& x) override {
    std::optional<Tensor> y;
    std::size_t next = 0;
    net_.for_each_layer([&](const std::string&, auto& layer) {
      if constexpr (requires { layer.skipped_bias(); }) {
        if (next++ != part) return;
        y = layer.forward(x);
        if (layer.is_partial()) y = all_reduce(*backend_, *comm_, std::move(*y));
        if (const auto* bias = layer.skipped_bias()) y = backend_->add_bias(*y, *bias);
      }
    });
    if (!y) return ModuleOn<B>::forward_part(part, x);
    return std::move(*y);
  }

 private:
  [[nodiscard]] Tensor whole(const Tensor& x) {
    return backend_->slice(x, 0, 0, backend_->shape(x).rows());
  }
  [[nodiscard]] Tensor step(Tensor x, const Batch& batch, KvCache<B>& cache) {
    if constexpr (requires { net_.forward(Stream<Tensor>{std::move(x)}, batch, cache); })
      return settled(*backend_, net_.forward(Stream<Tensor>{std::move(x)}, batch, cache));
    else if constexpr (requires { net_.forward(x, batch, cache); })
      return net_.forward(x, batch, cache);
    else
      return net_.forward(x);
  }

  Net net_;
  B* backend_;
  Communicator* comm_;
  DecoderSteps steps_;
};

/// The norm of the residual stream, which needs no other rank.
template <class B>
struct LoneNorm : StreamNorm<B> {
  LoneNorm(B& b, Communicator& comm, const DecoderShape& s)
      : StreamNorm<B>(b, comm, s.norm, {s.hidden(), s.norm_eps}) {}
};
/// The norm of all query heads together.
template <class B, class HeadNorm>
struct LoneHeadNorm : HeadNorm {
  LoneHeadNorm(B& b, Communicator& comm, const DecoderShape& s)
      : HeadNorm(b, comm,
                 {s.attention.qkv.heads, s.attention.qkv.head_dim, 1, s.attention.norm_eps}) {}
  template <class F>
  void for_each_layer(F&& f) {
    f("", static_cast<HeadNorm&>(*this));
  }
};

}  // namespace tpsim::detail
