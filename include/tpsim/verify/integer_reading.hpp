// SPDX-License-Identifier: MIT
// Linear layers on small integers, bit for bit.
#pragma once

#include <tpsim/verify/compare_outputs.hpp>
#include <tpsim/verify/numeric_options.hpp>
#include <tpsim/verify/output_cause.hpp>
#include <tpsim/verify/static_reading.hpp>

namespace tpsim {
namespace detail {

/// The ranks' results on integer data equal those of full(), converted: both are exact.
/// @param what  " of down_proj" for a part of a layer, or ""
template <class Numeric>
void compare_integers(const Subject& subject, Subject::Reference& reference,
                      const RankRuns<Numeric>& runs,
                      const std::vector<Subject::Reference::Tensor>& full, const std::string& what,
                      CheckResult& result) {
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    if (!runs.outputs[r]) continue;
    const auto& have = runs.outputs[r]->value;
    const auto wanted = expected_output(reference, subject, full, r).value;
    const std::string who = "rank " + std::to_string(r);
    if (have.rows() != wanted.rows() || have.cols() != wanted.cols()) {
      result.findings.push_back({"integer", static_cast<int>(r), "output",
                                 who + " returns another shape" + what + " than full()", "", ""});
      continue;
    }
    Index wrong = 0, first = -1;
    for (Index c = 0; c < have.cols(); ++c)
      for (Index t = 0; t < have.rows(); ++t)
        if (!(static_cast<double>(have(t, c)) == wanted(t, c))) first = wrong++ == 0 ? c : first;
    result.compared += have.size();
    if (wrong == 0) continue;
    auto [cause, repair] = result.findings.size() < 8
                               ? output_cause<IntegerElements>(subject, reference, runs, full, r)
                               : Cause{};
    result.findings.push_back({"integer", static_cast<int>(r), "output",
                               who + " differs in " + std::to_string(wrong) + " of " +
                                   std::to_string(have.size()) + " elements" + what +
                                   ", first at " + output_place(subject, r, first),
                               std::move(cause), std::move(repair)});
  }
}

/// Adds to `result` what a linear layer, or a linear part of a layer, makes of integers. Every sum
/// is exact, so any order gives the same bits, here and on any other machine.
template <class Numeric>
void read_integers_of(const Subject& subject, const NumericOptions& o, const std::string& what,
                      CheckResult& result) {
  EigenOptions options;
  options.values = {eigen::ValueKind::integer, o.seed,
                    eigen::integer_range(o.dtype, subject.input_width)};
  options.order = o.all_reduce;
  options.tf32 = o.tf32;  // holds these integers as they are
  const std::vector<DiskTensor> tensors = without_values(subject.tensors);
  // Sparse inputs need as many tokens as it takes to touch every column.
  const Shape shape(std::max(subject.tokens, options.values.range.x_stride), subject.input_width);
  const auto input = [&](auto& b) { return b.activation("x", shape); };
  const auto runs = run_ranks<Numeric>(
      subject, tensors, [&](int rank) { return std::make_unique<Numeric>(rank, o.dtype, options); },
      input, [](std::size_t, Numeric&, ModuleOn<Numeric>&) {}, o.schedule, o.world);
  if (o.world != nullptr && !o.world->is_root()) return;
  Subject::Reference reference(0, o.dtype, options);
  const auto full = subject.full(reference, input(reference), full_params(reference, tensors));
  result.findings.insert(result.findings.end(), runs.findings.begin(), runs.findings.end());
  compare_integers(subject, reference, runs, full, what, result);
}

}  // namespace detail

/// Check `integer`: of a linear layer, or of each linear part of another layer by itself.
/// @tparam Numeric  computes the ranks' numbers
template <class Numeric>
[[nodiscard]] CheckResult read_integers_on(const Subject& subject, const NumericOptions& o = {}) {
  CheckResult integer{.id = "integer", .reading = Reading::numeric};
  if (subject.linear) detail::read_integers_of<Numeric>(subject, o, "", integer);
  if (!subject.linear && o.stages)
    for (const std::unique_ptr<Subject>& part : subject.linear_parts())
      detail::read_integers_of<Numeric>(*part, o, " of " + part->layer, integer);
  if (!integer.findings.empty())
    integer.message = integer.findings.front().message;
  else if (integer.compared == 0 && !o.stages)
    integer.message = "the ranks hold another order than declared: no part is judged alone";
  else if (integer.compared == 0)
    integer.message = "a nonlinear function leaves the integers, and no linear part is declared";
  else
    integer.message =
        (subject.linear ? "bit-equal on integer data, " : "linear parts bit-equal on integers, ") +
        std::to_string(integer.compared) + " elements";
  detail::settle(integer);
  return integer;
}
/// On the engine that the options name.
template <class = void>
[[nodiscard]] CheckResult read_integers(const Subject& subject, const NumericOptions& o = {}) {
  return o.engine != nullptr ? o.engine->integers(subject, o)
                             : read_integers_on<Subject::Numeric>(subject, o);
}

}  // namespace tpsim
