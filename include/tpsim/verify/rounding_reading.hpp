// SPDX-License-Identifier: MIT
// Floats against full() in double within a derived bound, and against each other bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tpsim/verify/compare_outputs.hpp>
#include <tpsim/verify/decoder_steps.hpp>
#include <tpsim/verify/numeric_options.hpp>
#include <tpsim/verify/output_cause.hpp>
#include <tpsim/verify/static_reading.hpp>

namespace tpsim {
namespace detail {

/// Equality of bits, so that a NaN (unwritten memory) equals nothing but its own copy.
[[nodiscard]] inline std::uint32_t float_bits(const eigen::Tensor<float>& t, Index row, Index col) {
  return std::bit_cast<std::uint32_t>(t.value(row, col));
}

/// How the results of one rank lie to their bounds.
struct BoundFigures {
  double ratio = -1;         ///< largest difference / bound; -1: no element has both
  double difference = 0;     ///< the largest
  Index token = 0, col = 0;  ///< where that is
  double floor = 0;          ///< largest bound / root mean square of full()
  Index outside = 0;         ///< elements further from full() than their bound
  Index unbounded = 0;       ///< finite elements whose bound is not
  Index not_finite = 0;      ///< elements that are not, where full() is
  /// Token, column: of the first that is not finite, else of the first unbounded.
  std::optional<std::pair<Index, Index>> first_lost;
};

/// @pre both have the same shape
template <class Real>
[[nodiscard]] BoundFigures measure(const eigen::Tensor<Real>& have,
                                   const eigen::Tensor<double>& wanted) {
  BoundFigures out;
  double squares = 0, largest_bound = 0;
  for (Index c = 0; c < have.value.cols(); ++c)
    for (Index t = 0; t < have.value.rows(); ++t) {
      const double y = wanted.value(t, c),
                   difference = std::abs(static_cast<double>(have.value(t, c)) - y);
      const double bound = have.bound_at(t, c) + wanted.bound_at(t, c);
      squares += y * y;
      const bool finite = std::isfinite(difference);
      if (finite) out.difference = std::max(out.difference, difference);
      // Where a value overflows its bound does too, and says nothing: full() is finite there.
      if (!finite || !std::isfinite(bound)) {
        ++(finite ? out.unbounded : out.not_finite);
        if (!out.first_lost || (!finite && out.not_finite == 1)) out.first_lost = {t, c};
        continue;
      }
      largest_bound = std::max(largest_bound, bound);
      if (difference > bound) ++out.outside;
      const double ratio = difference == 0 ? 0 : difference / bound;
      if (ratio > out.ratio) out.ratio = ratio, out.token = t, out.col = c;
    }
  if (squares > 0)
    out.floor = largest_bound / std::sqrt(squares / static_cast<double>(wanted.value.size()));
  return out;
}

/// Collects how tensors of the ranks lie to their bounds.
class BoundReport {
 public:
  explicit BoundReport(DType declared) : declared_(declared) {}
  CheckResult result{.id = "rounding", .reading = Reading::numeric};

  /// @param place  of an element (token, column)
  void add(std::size_t rank, const eigen::Tensor<float>& have, const eigen::Tensor<double>& wanted,
           const std::function<OutputPlace(Index, Index)>& place) {
    const std::string tensor = place(0, 0).tensor, who = "rank " + std::to_string(rank);
    const auto found = [&](const std::string& text, const Cause& cause) {
      result.findings.push_back(
          {"rounding", static_cast<int>(rank), tensor, who + text, cause.cause, cause.repair});
    };
    if (have.value.rows() != wanted.value.rows() || have.value.cols() != wanted.value.cols())
      return found(" returns another shape than full()", {});
    const BoundFigures f = measure(have, wanted);
    result.compared += have.value.size();
    const OutputPlace worst = place(f.token, f.col);
    if (f.ratio > result.largest_ratio.value_or(-1))
      result.largest_ratio = f.ratio, result.largest_place = worst;
    result.detection_floor = std::max(result.detection_floor.value_or(0), f.floor);
    const std::string of = " of " + std::to_string(have.value.size()) + " elements are ";
    if (f.first_lost)
      found(": " + std::to_string(f.not_finite + f.unbounded) + of +
                "not finite where full() is, first at " +
                column_text(place(0, f.first_lost->second)),
            {"a value was never written, or a sum leaves the range of the type", ""});
    if (f.outside > 0)
      found(": " + std::to_string(f.outside) + of + "outside their bound, worst at " +
                column_text(worst),
            precision_cause(have, declared_));
  }
  void finish() {
    if (result.largest_place) result.largest_at = place_text(*result.largest_place);
    char text[64];
    std::snprintf(text, sizeof text, "largest difference %.2g of its bound",
                  result.largest_ratio.value_or(0));
    result.message = result.findings.empty() ? text : result.findings.front().message;
    settle(result);
  }

 private:
  DType declared_;
};

/// Feeds the linear parts of a layer the reference's inputs, rounded to the dtype, and keeps what
/// they would have been given: so each stage is held to a bound of its own.
/// @tparam Numeric  computes the ranks' numbers; its tensors are eigen::Tensor<float>, or more
template <class Numeric>
class StageInputs {
  using Tensor = typename Numeric::Tensor;

 public:
  StageInputs(const Subject& subject, bool wanted)
      : first_(subject.first_stage_is_input ? 1 : 0), passes_(subject.passes(subject.tokens)) {
    if (wanted) parts_ = subject.linear_parts();
    own_.resize(static_cast<std::size_t>(subject.tp));
  }
  /// Call before full().
  void record(Subject::Reference& reference) {
    if (parts_.empty()) return;
    reference.set_stage_input([&](std::size_t, const eigen::Tensor<double>& x) {
      products_.push_back(x);
      return reference.input(x.value);
    });
  }
  /// Call after full() and before the rank's forward. Both backends must outlive it.
  void feed(std::size_t rank, Numeric& b, Subject::Reference& reference) {
    if (parts_.empty()) return;
    b.set_stage_input([&, rank](std::size_t call, const Tensor& x) -> Tensor {
      const std::size_t declared = parts_.size() * std::max<std::size_t>(passes_.size(), 1);
      if (call >= declared || own_[rank].size() != call) return x;  // not the declared stages
      own_[rank].push_back(x);
      const eigen::Tensor<double> wanted = of_rank(rank, call, reference);
      const bool fits =
          wanted.value.rows() == x.value.rows() && wanted.value.cols() == x.value.cols();
      return fits ? b.input(wanted.value) : x;
    });
  }
  /// Between record() and feed(): what full() has multiplied, from the root to all processes.
  void share(RankWorld& world) {
    if (parts_.empty()) return;
    ByteWriter w;
    for (const eigen::Tensor<double>& x : products_)
      w.put_all(std::span<const std::byte>(eigen::pack(x)));
    const Bytes bytes = world.share(std::move(w.bytes));
    if (world.is_root()) return;
    for (ByteReader r(bytes); !r.at_end();)
      products_.push_back(eigen::unpack<double>(r.get_vector<std::byte>()));
  }
  /// After the run: what the ranks of the other processes have kept.
  void bring(RankWorld& world) {
    if (parts_.empty()) return;
    ByteWriter w;
    for (std::size_t r = 0; r < own_.size(); ++r)
      for (const eigen::Tensor<float>& x : own_[r]) {
        w.put(r);
        w.put_all(std::span<const std::byte>(eigen::pack(x)));
      }
    const std::vector<Bytes> all = world.bring(w.bytes);
    if (!world.is_root()) return;
    for (auto& inputs : own_) inputs.clear();
    for (const Bytes& bytes : all)
      for (ByteReader in(bytes); !in.at_end();) {
        const auto r = in.get<std::size_t>();
        own_.at(r).push_back(eigen::unpack<float>(in.get_vector<std::byte>()));
      }
  }
  /// The ranks' own inputs of all stages but one that is fed the layer's.
  void compare(Subject::Reference& reference, BoundReport& report) const {
    for (std::size_t r = 0; r < own_.size(); ++r)
      for (std::size_t call = 0; call < own_[r].size(); ++call) {
        const std::size_t part = call % parts_.size();
        if (part < first_) continue;
        report.add(r, own_[r][call], of_rank(r, call, reference), [&](Index token, Index column) {
          const Index row = passes_.empty()
                                ? token
                                : passes_[call / parts_.size()][static_cast<std::size_t>(token)];
          return OutputPlace{static_cast<int>(r), parts_[part]->layer + " input", {}, row, column};
        });
      }
  }

 private:
  /// What full() gives the call's product: the rank's columns, the pass's rows.
  [[nodiscard]] eigen::Tensor<double> of_rank(std::size_t rank, std::size_t call,
                                              Subject::Reference& reference) const {
    const std::size_t part = call % parts_.size();
    std::size_t product = 0;
    for (std::size_t k = 0; k < part; ++k) product += parts_[k]->outputs.size();
    eigen::Tensor<double> x =
        take_columns(reference, products_.at(product), parts_[part]->input_columns[rank]);
    if (passes_.empty()) return x;
    return take_tokens(reference, x, passes_[call / parts_.size()]);
  }
  std::size_t first_;
  std::vector<std::vector<Index>> passes_;  ///< rows of each; empty: one of all
  std::vector<std::unique_ptr<Subject>> parts_;
  std::vector<eigen::Tensor<double>> products_;  ///< inputs of full()'s products, in order
  /// [rank][call]: part by part, pass by pass; of a device, what the host knows
  std::vector<std::vector<eigen::Tensor<float>>> own_;
};

}  // namespace detail

/// Checks `rounding` and `replicas`, on the checkpoint's own numbers where it has some. A layer
/// with linear_parts() is held stage by stage: each part is fed the reference's input, so that no
/// bound passes through a nonlinear function and the sums behind it; what the ranks would have fed
/// it is compared too.
/// @tparam Numeric  computes the ranks' numbers
template <class Numeric>
[[nodiscard]] std::vector<CheckResult> read_rounding_on(const Subject& subject,
                                                        const NumericOptions& o = {}) {
  EigenOptions options;
  options.values = {eigen::ValueKind::normalish, o.seed, {}};
  options.track_bounds = true;
  options.order = o.all_reduce;
  options.weakening = o.weakening;
  options.tf32 = o.tf32;
  const auto input = [&](auto& b) {
    return b.activation("x", Shape(subject.tokens, subject.input_width));
  };
  detail::StageInputs<Numeric> stages(subject, o.stages);
  Subject::Reference reference(0, o.dtype, options);
  stages.record(reference);
  const bool judges = o.world == nullptr || o.world->is_root();
  std::vector<eigen::Tensor<double>> full;  // made by the one process that judges
  if (judges)
    full = subject.full(reference, input(reference), full_params(reference, subject.tensors));
  if (o.world != nullptr) stages.share(*o.world);
  const auto runs = run_ranks<Numeric>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<Numeric>(rank, o.dtype, options); }, input,
      [&](std::size_t rank, Numeric& b, ModuleOn<Numeric>&) { stages.feed(rank, b, reference); },
      o.schedule, o.world);
  detail::BoundReport rounding(o.dtype);
  if (o.world != nullptr) stages.bring(*o.world);
  if (!judges) return {rounding.result};
  rounding.result.findings = runs.findings;
  stages.compare(reference, rounding);
  for (std::size_t r = 0; r < runs.outputs.size(); ++r)
    if (runs.outputs[r])
      rounding.add(r, *runs.outputs[r], expected_output(reference, subject, full, r),
                   [&](Index token, Index column) { return place_of(subject, r, token, column); });
  rounding.finish();
  CheckResult replicas{.id = "replicas", .reading = Reading::numeric};
  compare_replicas(subject, runs, detail::float_bits, replicas);
  if (!replicas.findings.empty())
    replicas.message = replicas.findings.front().message;
  else if (replicas.compared == 0)
    replicas.message = "no output is on several ranks";
  else
    replicas.message =
        "bit-equal on all ranks that hold them, " + std::to_string(replicas.compared) + " elements";
  detail::settle(replicas);
  return {rounding.result, replicas};
}
/// On the engine that the options name.
template <class = void>
[[nodiscard]] std::vector<CheckResult> read_rounding(const Subject& subject,
                                                     const NumericOptions& o = {}) {
  return o.engine != nullptr ? o.engine->rounding(subject, o)
                             : read_rounding_on<Subject::Numeric>(subject, o);
}

}  // namespace tpsim
