// SPDX-License-Identifier: MIT
// What a user's module must offer, each requirement by name, and how it is called.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/layout/plan.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// What a rank calls its parameters: {{"up_proj.weight", &up}, ...}.
template <class B>
using Params = std::vector<std::pair<std::string, typename B::Param*>>;

/// Rank(backend, communicator, shape): one rank's layer, its parameters not yet loaded.
template <class Rank, class B, class Shape>
concept RankIsMadeOfBackendCommunicatorAndShape =
    std::constructible_from<Rank, B&, Communicator&, const Shape&>;

/// params(): every parameter under the name that the plan gives it.
template <class Rank, class B>
concept RankHasParams = requires(Rank& rank) {
  { rank.params() } -> std::convertible_to<Params<B>>;
};

/// load(name, tensor): the weight_loader. load(name, tensor, layout) is told in which rows the
/// parts of a fused tensor lie. It may return false for a name that it does not know.
template <class Rank>
concept RankHasLoad = requires(Rank& rank, const std::string& name, const FullTensor& full) {
  rank.load(name, full);
} || requires(Rank& rank, const std::string& name, const FullTensor& full, const RowLayout& rows) {
  rank.load(name, full, rows);
};

/// forward(x): what this rank returns; several outputs side by side.
template <class Rank, class B>
concept RankHasForward = requires(Rank& rank, const typename B::Tensor& x) {
  { rank.forward(x) } -> std::same_as<typename B::Tensor>;
};

namespace detail {

/// full() with the shape when it takes one.
template <class Rank, class B, class Shape>
[[nodiscard]] auto call_full(B& b, const typename B::Tensor& x, const FullParams<B>& t,
                             const Shape& shape) {
  if constexpr (requires { Rank::full(b, x, t, shape); })
    return Rank::full(b, x, t, shape);
  else if constexpr (requires { Rank::full(b, x, t); })
    return Rank::full(b, x, t);
}
template <class Result, class B>
concept OneTensorOrSeveral = std::same_as<Result, typename B::Tensor> ||
                             std::same_as<Result, std::vector<typename B::Tensor>>;

}  // namespace detail

/// full(backend, x, tensors), perhaps also with the shape: the meaning of the layer when nothing is
/// cut; one tensor, or a vector with one for each output of the plan. Static: it shares nothing
/// with the ranks.
template <class Rank, class B, class Shape>
concept RankHasFull =
    requires(B& b, const typename B::Tensor& x, const FullParams<B>& t, const Shape& shape) {
      { detail::call_full<Rank>(b, x, t, shape) } -> detail::OneTensorOrSeveral<B>;
    };

/// plan(shape): the module's tensors and their cuts at these sizes.
template <class Module, class Shape>
concept ModuleHasPlan = requires(const Module& module, const Shape& shape) {
  { module.plan(shape) } -> std::convertible_to<Plan>;
};

/// Rank<B>: the code under test on any backend.
template <class Module, class B>
concept ModuleHasRank = requires { typename Module::template Rank<B>; };

/// What verify() takes.
template <class Module, class Shape>
concept ParallelModule =
    ModuleHasPlan<Module, Shape> && ModuleHasRank<Module, SymbolicBackend> &&
    RankIsMadeOfBackendCommunicatorAndShape<typename Module::template Rank<SymbolicBackend>,
                                            SymbolicBackend, Shape> &&
    RankHasParams<typename Module::template Rank<SymbolicBackend>, SymbolicBackend> &&
    RankHasLoad<typename Module::template Rank<SymbolicBackend>> &&
    RankHasForward<typename Module::template Rank<SymbolicBackend>, SymbolicBackend> &&
    RankHasFull<typename Module::template Rank<SymbolicBackend>, SymbolicBackend, Shape>;

namespace detail {

/// @returns false when the rank says that it does not know the tensor
template <class Rank>
bool load_into_rank(Rank& rank, const DiskTensor& t) {
  const auto took = [](auto&& load) {
    if constexpr (std::convertible_to<decltype(load()), bool>)
      return static_cast<bool>(load());
    else
      return load(), true;
  };
  const std::string& name = t.stored->name;
  const FullTensor full = t.view();
  if constexpr (requires { rank.load(name, full, t.layout); })
    return took([&] { return rank.load(name, full, t.layout); });
  else
    return took([&] { return rank.load(name, full); });
}

template <class Rank, class B, class Shape>
[[nodiscard]] std::vector<typename B::Tensor> full_results(B& b, const typename B::Tensor& x,
                                                           const FullParams<B>& t,
                                                           const Shape& shape) {
  auto results = call_full<Rank>(b, x, t, shape);
  if constexpr (std::same_as<decltype(results), typename B::Tensor>) {
    std::vector<typename B::Tensor> one;
    one.push_back(std::move(results));
    return one;
  } else {
    return results;
  }
}

/// A user's rank as the verifier calls it.
template <class B, class Rank>
class RankModule final : public ModuleOn<B> {
 public:
  template <class Shape>
  RankModule(B& b, Communicator& comm, const Shape& shape) : rank_(b, comm, shape) {}
  [[nodiscard]] Params<B> params() override { return rank_.params(); }
  void load(const DiskTensor& t) override { (void)load_into_rank(rank_, t); }
  [[nodiscard]] typename B::Tensor forward(const typename B::Tensor& x) override {
    return rank_.forward(x);
  }

 private:
  Rank rank_;
};

}  // namespace detail
}  // namespace tpsim
