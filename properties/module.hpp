// SPDX-License-Identifier: MIT
// A user's module as a candidate for the laws: its shapes from the user, tp, tokens, dtype and seed
// drawn beside them.
#pragma once

#include <concepts>

#include <properties/law.hpp>
#include <tpsim/verify/module.hpp>

namespace tpsim::properties {

/// What a function of drawn sizes draws from: `d.from_one(8)`, `d.below(3)`, `d.flag()`,
/// `d.one_of(list)`. Every draw shrinks to its first choice.
using Sizes = detail::Draws;

namespace detail {

/// What is drawn beside the shape.
struct Numbers {
  int tp = 0;  ///< index into the legal ones
  Index tokens = 1;
  DType dtype = DType::f32;
  std::uint64_t seed = 1;
};
[[nodiscard]] inline Numbers draw_numbers(Draws& d) {
  Numbers out;
  out.tp = d.below(8);
  out.tokens = d.from_one(4);
  const Case c = with_numbers(d, {});
  out.dtype = c.dtype;
  out.seed = c.seed;
  return out;
}

/// A legal tp up to 8, the simplest that shows anything first; 1 when there is none, for the law to
/// fail with the plan's own words.
[[nodiscard]] inline int choose_tp(const Plan& plan, int index) {
  std::vector<int> legal;
  try {
    const BoundPlan bound = bind_plan(plan);
    for (const int tp : {2, 3, 4, 6, 8, 5, 7, 1})
      if (violations(bound, tp).empty()) legal.push_back(tp);
  } catch (const LayoutError&) {
  }
  if (legal.empty()) return 1;
  return legal[std::min(static_cast<std::size_t>(index), legal.size() - 1)];
}

/// @param tp  0: a legal one
template <class Module, class Shape>
[[nodiscard]] Case module_case(const Module& module, const Shape& shape, const Numbers& n, int tp) {
  const Plan plan = module.plan(shape);
  Case c;
  c.spec.layer = plan.name;
  c.spec.tp = tp > 0 ? tp : choose_tp(plan, n.tp);
  c.spec.tokens = n.tokens;
  c.dtype = n.dtype;
  c.seed = n.seed;
  c.shape = shape;
  c.sizes = tpsim::describe(plan.axes);
  return c;
}

template <class Module, class Shape>
[[nodiscard]] Candidate module_candidate(const Module& module, const rc::Gen<Case>& cases) {
  Candidate out;
  out.make_case = [module](const Case& c) {
    return make_subject(module, std::any_cast<const Shape&>(c.shape),
                        {.tp = c.spec.tp, .tokens = c.spec.tokens});
  };
  out.legal = [cases] { return cases; };
  out.layer = cases(rc::Random(1), 0).value().spec.layer;
  return out;
}

}  // namespace detail

/// A module with a generator of its shapes; tp is a legal one.
template <class Module, class Shape>
  requires ParallelModule<Module, Shape>
[[nodiscard]] Candidate candidate(const Module& module, const rc::Gen<Shape>& shapes) {
  return detail::module_candidate<Module, Shape>(
      module, rc::gen::map(rc::gen::pair(shapes, detail::drawn(detail::draw_numbers)),
                           [module](const std::pair<Shape, detail::Numbers>& both) {
                             return detail::module_case(module, both.first, both.second, 0);
                           }));
}

/// With a list of shapes, the simplest first.
template <class Module, class Shape>
  requires ParallelModule<Module, Shape>
[[nodiscard]] Candidate candidate(const Module& module, const std::vector<Shape>& shapes) {
  if (shapes.empty()) throw LayoutError("there is no shape to try the laws on");
  return detail::module_candidate<Module, Shape>(module, detail::drawn([=](Sizes& d) {
                                                   const Shape& shape = d.one_of(shapes);
                                                   return detail::module_case(
                                                       module, shape, detail::draw_numbers(d), 0);
                                                 }));
}

/// With a function of drawn sizes and tp, `[](Sizes& d, int tp) { return Sizes{d.from_one(8),
/// tp * d.from_one(4)}; }`, whose shapes can be cut over that tp.
template <class Module, class Make>
  requires std::invocable<const Make&, Sizes&, int> &&
           ParallelModule<Module, std::invoke_result_t<const Make&, Sizes&, int>>
[[nodiscard]] Candidate candidate(const Module& module, const Make& make) {
  using Shape = std::invoke_result_t<const Make&, Sizes&, int>;
  return detail::module_candidate<Module, Shape>(module, detail::drawn([=](Sizes& d) {
                                                   const int tp = detail::draw_tp(d);
                                                   const Shape shape = make(d, tp);
                                                   return detail::module_case(
                                                       module, shape, detail::draw_numbers(d), tp);
                                                 }));
}

}  // namespace tpsim::properties
