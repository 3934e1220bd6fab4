// SPDX-License-Identifier: MIT
// Other people's layers: what a module has to offer, and verify() for it.
//
//   template <tpsim::Backend B> class SquareMlp { ... };  // one rank's code: see Rank below
//   struct MySquareMlp {
//     template <class B> using Rank = SquareMlp<B>;
//     static tpsim::Plan plan(const Sizes& s) { ... }
//   };
//   tpsim::Report report = tpsim::verify(MySquareMlp{}, Sizes{8, 12}, {.tp = 4});
#pragma once

#include <tpsim/backend/collectives.hpp>
#include <tpsim/verify/module_fit.hpp>
#include <tpsim/verify/plan_subject.hpp>
#include <tpsim/verify/verify.hpp>

namespace tpsim {

/// How a module is to be verified.
struct ModuleOptions {
  int tp = 2;
  Index tokens = 16;
  TensorValues values = {};  ///< a real checkpoint's numbers, by tensor
  VerifyOptions readings = {};
};

/// A user's module with its shape, at one tp. The module's code is under test; its plan and its
/// full() say what is right.
template <class Module, class Shape>
class ModuleSubject final : public SubjectOf<ModuleSubject<Module, Shape>> {
 public:
  /// @throws LayoutError with all that is wrong: with the plan, with this tp (and the legal tp in
  /// the
  ///   hint), or with how the module fits its plan
  ModuleSubject(Module module, Shape shape, const ModuleOptions& o)
      : module_(std::move(module)), shape_(std::move(shape)) {
    const BoundPlan plan = bind_plan(module_.plan(shape_));
    require_legal(plan, o.tp);
    if (o.tokens < 1)
      throw LayoutError("there must be tokens",
                        {{"divide", "tokens is " + std::to_string(o.tokens)}});
    declare_plan(*this, plan, o.tp, o.tokens, o.values);
    detail::require_fit<typename Module::template Rank<SymbolicBackend>>(*this, shape_);
  }

  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> module(B& b, Communicator& comm) const {
    return std::make_unique<detail::RankModule<B, typename Module::template Rank<B>>>(b, comm,
                                                                                      shape_);
  }
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> meaning(B& b, const typename B::Tensor& x,
                                                        const FullParams<B>& t) const {
    return detail::full_results<typename Module::template Rank<B>>(b, x, t, shape_);
  }

 private:
  Module module_;
  Shape shape_;
};

/// The subject that verify() takes. @throws LayoutError as ModuleSubject
template <class Module, class Shape>
  requires ParallelModule<Module, Shape>
[[nodiscard]] std::unique_ptr<Subject> make_subject(const Module& module, const Shape& shape,
                                                    const ModuleOptions& o = {}) {
  return std::make_unique<ModuleSubject<Module, Shape>>(module, shape, o);
}

/// Verifies a user's module by every reading. All checks run, whatever an earlier one found.
/// @throws LayoutError when it cannot be asked: a plan that does not work out, an illegal tp, a
///   module that does not fit its plan
template <class Module, class Shape>
  requires ParallelModule<Module, Shape>
[[nodiscard]] Report verify(const Module& module, const Shape& shape, const ModuleOptions& o) {
  return verify(*make_subject(module, shape, o), o.readings);
}

}  // namespace tpsim
