// SPDX-License-Identifier: MIT
// From numbers that are wrong to the likely cause, where the numbers tell it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/verify/cause.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim {
namespace detail {

/// Exact arithmetic on the elements of field tensors.
struct FieldElements {
  using Element = gf61::Element;
  [[nodiscard]] static Element at(const FieldTensor& t, Index row, Index col) {
    return t.at(row, col);
  }
  [[nodiscard]] static Element add(Element a, Element b) { return gf61::add(a, b); }
  [[nodiscard]] static Element sub(Element a, Element b) { return gf61::sub(a, b); }
  [[nodiscard]] static Element times(Element a, int n) {
    return gf61::mul(a, static_cast<Element>(n));
  }
};
/// The same on integers in floats. A NaN equals nothing.
struct IntegerElements {
  using Element = double;
  template <class Real>
  [[nodiscard]] static double at(const eigen::Tensor<Real>& t, Index row, Index col) {
    return static_cast<double>(t.value(row, col));
  }
  [[nodiscard]] static double add(double a, double b) { return a + b; }
  [[nodiscard]] static double sub(double a, double b) { return a - b; }
  [[nodiscard]] static double times(double a, int n) { return a * n; }
};

/// All elements, column after column.
template <class E, class Tensor>
[[nodiscard]] std::vector<std::vector<typename E::Element>> columns_of(const Tensor& t,
                                                                       Shape shape) {
  std::vector<std::vector<typename E::Element>> out(static_cast<std::size_t>(shape.cols()));
  for (Index c = 0; c < shape.cols(); ++c)
    for (Index row = 0; row < shape.rows(); ++row)
      out[static_cast<std::size_t>(c)].push_back(E::at(t, row, c));
  return out;
}

}  // namespace detail

/// Why rank r's output is not full()'s, from the ranks' outputs alone; empty where they do not say.
/// @pre rank r has an output, of the expected shape
template <class E, class B, class Reference>
[[nodiscard]] Cause output_cause(const Subject& subject, Reference& reference,
                                 const RankRuns<B>& runs,
                                 const std::vector<typename Reference::Tensor>& full,
                                 std::size_t r) {
  using Columns = std::vector<std::vector<typename E::Element>>;
  const auto expected = [&](std::size_t rank) {
    const auto t = expected_output(reference, subject, full, rank);
    return detail::columns_of<E>(t, reference.shape(t));
  };
  const auto found = [&](std::size_t rank) {
    const auto& t = *runs.outputs[rank];
    return detail::columns_of<E>(t, runs.backends[rank]->shape(t));
  };
  const auto zip = [](const Columns& a, const Columns& b, auto f) {
    Columns out = a;
    for (std::size_t c = 0; c < a.size(); ++c)
      for (std::size_t t = 0; t < a[c].size(); ++t) out[c][t] = f(a[c][t], b[c][t]);
    return out;
  };
  const auto times = [](Columns a, int n) {
    for (auto& column : a)
      for (auto& v : column) v = E::times(v, n);
    return a;
  };
  if (subject.chooses) return {};  // numbers of columns: what is between them means nothing
  const Columns have = found(r), wanted = expected(r);
  for (const auto& column : have)
    for (const auto& v : column)
      if (!(v == v)) return {};  // not a number: nothing can be told from it

  for (std::size_t s = 0; s < runs.outputs.size(); ++s)
    if (s != r && have == expected(s))
      return {"it returns what rank " + std::to_string(s) + " ought to", "rank r holds part r"};
  if (subject.tp > 1 && have == times(wanted, subject.tp))
    return {"every element is tp times too large: a whole value was summed over the ranks",
            "sum once, and only partial products"};
  if (subject.tp > 1 && times(have, subject.tp) == wanted)
    return {"every element is tp times too small: the sum was divided by tp",
            "sum the partial products: no division by tp"};
  bool all = true;  // outputs of one shape
  for (const auto& output : runs.outputs)
    all = all && output &&
          runs.backends[0]->shape(*output) == runs.backends[r]->shape(*runs.outputs[r]);
  if (all && subject.tp > 1) {
    Columns total = found(0);
    for (std::size_t s = 1; s < runs.outputs.size(); ++s) total = zip(total, found(s), E::add);
    if (total == wanted)
      return {"the ranks return partial results: their sum is right",
              "all_reduce before the result is used"};
  }
  Columns sorted_have = have, sorted_wanted = wanted;
  std::sort(sorted_have.begin(), sorted_have.end());
  std::sort(sorted_wanted.begin(), sorted_wanted.end());
  if (sorted_have == sorted_wanted)
    return {"the columns are right, in another order",
            "keep the order of the ranks and of the parts"};
  bool constant = true;
  for (const auto& column : zip(have, wanted, E::sub)) {
    constant = constant && column.size() > 1;
    for (const auto& v : column) constant = constant && v == column[0];
  }
  if (constant)
    return {"the difference is the same for every token: a bias is wrong, or counted wrongly",
            "add the bias once, and the rows that belong to the rank"};
  return {};
}

/// What the outputs of one rank say when they are outside the bound of `declared` arithmetic.
[[nodiscard]] inline Cause precision_cause(const eigen::Tensor<float>& output, DType declared) {
  if (declared != DType::f32) return {};
  for (const DType type : {DType::bf16, DType::f16}) {
    eigen::Matrix<float> rounded = output.value;
    eigen::round_to(type, rounded.data(), rounded.size());
    if (rounded == output.value && !output.value.isZero(0))
      return {"every result is a " + std::string(name(type)) + " number: a step on the way keeps " +
                  std::string(name(type)) + ", not f32",
              "reduce and store in the declared type"};
  }
  return {};
}

}  // namespace tpsim
