// SPDX-License-Identifier: MIT
// The numeric reading: floats against full() in double within a derived bound, and small integers
// bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>

#include <tpsim/verify/compare_outputs.hpp>
#include <tpsim/verify/static_reading.hpp>

namespace tpsim {

struct NumericOptions {
  DType dtype = DType::f32;  ///< f32, bf16 or f16
  std::uint64_t seed = 1;
  Schedule schedule = {};
};

namespace detail {

using NumericRuns = RankRuns<Subject::Numeric>;

/// Equality of bits, so that a NaN (unwritten memory) equals nothing but its own copy.
[[nodiscard]] inline std::uint32_t float_bits(const eigen::Tensor<float>& t, Index row, Index col) {
  return std::bit_cast<std::uint32_t>(t.value(row, col));
}

/// Integer results of the ranks equal those of full(), converted: both are exact.
inline void compare_integers(const Subject& subject, Subject::Reference& reference,
                             const NumericRuns& runs,
                             const std::vector<Subject::Reference::Tensor>& full,
                             CheckResult& result) {
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    if (!runs.outputs[r]) continue;
    const auto& have = runs.outputs[r]->value;
    const auto wanted = expected_output(reference, subject, full, r).value;
    const std::string who = "rank " + std::to_string(r);
    if (have.rows() != wanted.rows() || have.cols() != wanted.cols()) {
      result.findings.push_back({"integer", static_cast<int>(r), "output",
                                 who + " returns another shape than full()", "", ""});
      continue;
    }
    Index wrong = 0, first = -1;
    for (Index c = 0; c < have.cols(); ++c)
      for (Index t = 0; t < have.rows(); ++t)
        if (!(static_cast<double>(have(t, c)) == wanted(t, c))) first = wrong++ == 0 ? c : first;
    result.compared += have.size();
    if (wrong > 0)
      result.findings.push_back({"integer", static_cast<int>(r), "output",
                                 who + " differs in " + std::to_string(wrong) + " of " +
                                     std::to_string(have.size()) + " elements, first at " +
                                     output_place(subject, r, first),
                                 "", ""});
  }
}

inline CheckResult compare_within_bound(const Subject& subject, Subject::Reference& reference,
                                        const NumericRuns& runs,
                                        const std::vector<Subject::Reference::Tensor>& full) {
  CheckResult result{.id = "rounding", .reading = Reading::numeric, .findings = runs.findings};
  double worst = 0, floor = 0;
  for (std::size_t r = 0; r < runs.outputs.size(); ++r) {
    if (!runs.outputs[r]) continue;
    const auto& have = *runs.outputs[r];
    const auto wanted = expected_output(reference, subject, full, r);
    const std::string who = "rank " + std::to_string(r);
    if (have.value.rows() != wanted.value.rows() || have.value.cols() != wanted.value.cols()) {
      result.findings.push_back({"rounding", static_cast<int>(r), "output",
                                 who + " returns another shape than full()", "", ""});
      continue;
    }
    double squares = 0, largest_bound = 0, rank_worst = -1;
    Index outside = 0, worst_col = 0, not_finite = 0, first_not_finite = 0;
    for (Index c = 0; c < have.value.cols(); ++c)
      for (Index t = 0; t < have.value.rows(); ++t) {
        const double y = wanted.value(t, c),
                     difference = std::abs(static_cast<double>(have.value(t, c)) - y);
        const double bound = have.bound_at(t, c) + wanted.bound_at(t, c);
        squares += y * y;
        // Where a value overflows its bound does too, and says nothing: full() is finite there.
        if (!std::isfinite(difference) || !std::isfinite(bound)) {
          if (not_finite++ == 0) first_not_finite = c;
          continue;
        }
        const double ratio = difference == 0 ? 0 : difference / bound;
        largest_bound = std::max(largest_bound, bound);
        if (difference > bound) ++outside;
        if (ratio > rank_worst) rank_worst = ratio, worst_col = c;
      }
    result.compared += have.value.size();
    const std::string place = who + " " + output_place(subject, r, worst_col);
    if (rank_worst > worst || result.largest_at.empty())
      worst = std::max(rank_worst, 0.0), result.largest_at = place;
    if (squares > 0)
      floor = std::max(
          floor, largest_bound / std::sqrt(squares / static_cast<double>(wanted.value.size())));
    if (not_finite > 0)
      result.findings.push_back(
          {"rounding", static_cast<int>(r), "output",
           who + ": " + std::to_string(not_finite) + " of " + std::to_string(have.value.size()) +
               " elements are not finite where full() is, first at " +
               output_place(subject, r, first_not_finite),
           "a value was never written, or a sum leaves the range of the type", ""});
    if (outside > 0)
      result.findings.push_back(
          {"rounding", static_cast<int>(r), "output",
           who + ": " + std::to_string(outside) + " of " + std::to_string(have.value.size()) +
               " elements are outside their bound, worst at " + output_place(subject, r, worst_col),
           "", ""});
  }
  result.largest_ratio = worst;
  result.detection_floor = floor;
  char text[64];
  std::snprintf(text, sizeof text, "largest difference %.2g of its bound", worst);
  result.message = result.findings.empty() ? text : result.findings.front().message;
  return result;
}

}  // namespace detail

/// Checks `integer`, `rounding` and `replicas`.
[[nodiscard]] inline std::vector<CheckResult> read_numerically(const Subject& subject,
                                                               const NumericOptions& o = {}) {
  using Numeric = Subject::Numeric;
  using Reference = Subject::Reference;
  CheckResult integer{.id = "integer", .reading = Reading::numeric},
      replicas{.id = "replicas", .reading = Reading::numeric};
  const auto no_look = [](std::size_t, Numeric&, ModuleOn<Numeric>&) {};
  const Shape shape(subject.tokens, subject.input_width);

  if (subject.linear) {
    // Every sum is exact, so any order gives the same bits, here and on any other machine.
    EigenOptions options;
    options.values = {eigen::ValueKind::integer, o.seed,
                      eigen::integer_range(o.dtype, subject.input_width)};
    const std::vector<DiskTensor> tensors = without_values(subject.tensors);
    // Sparse inputs need as many tokens as it takes to touch every column.
    const Shape whole = shape.with(0, std::max(subject.tokens, options.values.range.x_stride));
    const auto input = [&](auto& b) { return b.activation("x", whole); };
    const auto runs = run_ranks<Numeric>(
        subject, tensors,
        [&](int rank) { return std::make_unique<Numeric>(rank, o.dtype, options); }, input, no_look,
        o.schedule);
    Reference reference(0, o.dtype, options);
    const auto full = subject.full(reference, input(reference), full_params(reference, tensors));
    integer.findings = runs.findings;
    detail::compare_integers(subject, reference, runs, full, integer);
    integer.message = integer.findings.empty() ? "bit-equal on integer data, " +
                                                     std::to_string(integer.compared) + " elements"
                                               : integer.findings.front().message;
  } else {
    integer.message = "the activation leaves the integers; check merged and row by themselves";
  }

  EigenOptions options;
  options.values = {eigen::ValueKind::normalish, o.seed, {}};
  options.track_bounds = true;
  const auto input = [&](auto& b) { return b.activation("x", shape); };
  const auto runs = run_ranks<Numeric>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<Numeric>(rank, o.dtype, options); }, input, no_look,
      o.schedule);
  Reference reference(0, o.dtype, options);
  const auto full =
      subject.full(reference, input(reference), full_params(reference, subject.tensors));
  CheckResult rounding = detail::compare_within_bound(subject, reference, runs, full);
  compare_replicas(subject, runs, detail::float_bits, replicas);
  replicas.message = replicas.compared == 0 ? "no output is on several ranks"
                     : replicas.findings.empty()
                         ? "bit-equal on all ranks that hold them, " +
                               std::to_string(replicas.compared) + " elements"
                         : replicas.findings.front().message;

  for (CheckResult* c : {&integer, &rounding, &replicas}) detail::settle(*c);
  return {integer, rounding, replicas};
}

}  // namespace tpsim
