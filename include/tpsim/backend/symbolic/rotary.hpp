// SPDX-License-Identifier: MIT
// Rotary positions: whole heads, by the positions that full() turns them by.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/symbolic/numbers.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// Everything that changes a rotation: "32 of 64 columns half-split, theta 10000, linear 4".
[[nodiscard]] inline std::string rope_text(const RopeSpec& s, Index head_dim) {
  const auto with = [](double v) { return " " + exact_text(v); };
  std::string out = std::to_string(s.rotary_dim) + " of " + std::to_string(head_dim) + " columns" +
                    (s.style == RopeStyle::half_split ? " half-split" : " interleaved") +
                    ", theta" + with(s.theta);
  const std::string original = " of " + std::to_string(s.original_positions);
  switch (s.scaling) {
    case RopeScaling::none:
      return out;
    case RopeScaling::linear:
      return out + ", linear" + with(s.factor);
    case RopeScaling::llama3:
      return out + ", llama3" + with(s.factor) + with(s.low_freq_factor) +
             with(s.high_freq_factor) + original;
    case RopeScaling::yarn:
      return out + ", yarn" + with(s.factor) + with(s.beta_fast) + with(s.beta_slow) + " times" +
             with(rope_magnitude(s)) + original;
  }
  return out;
}

/// rope of one rank. Linear in x: a partial x stays partial.
class Rotary : private OneCall {
 public:
  using OneCall::OneCall;

  /// @throws LayoutError (heads) for columns that are no heads
  [[nodiscard]] SymbolicTensor operator()(const SymbolicTensor& x,
                                          const std::vector<Index>& positions, Index head_dim,
                                          const RopeSpec& spec) const {
    require_rope_fits({x.tokens.size(), x.width()}, positions, head_dim, spec);
    std::string label = rope_text(spec, head_dim);
    if (context_->positions().tell(x.tokens, positions))
      label += ", positions " + context_->positions().deviation(x.tokens, positions);
    SymbolicTensor out{x.tokens, {}, tp_rank_};
    for (Index head = 0; head * head_dim < x.width(); ++head) {
      const std::vector<ColumnRun> held = columns_of(x, head * head_dim, head_dim);
      out.append(turned(held, head, head_dim, label));
    }
    return out;
  }

 private:
  [[nodiscard]] ColumnRun turned(const std::vector<ColumnRun>& held, Index head, Index head_dim,
                                 const std::string& label) const {
    for (const ColumnRun& run : held)
      if (!known(run)) return unknown("a head of an unknown value", head_dim);
    if (held.size() != 1) return torn(held, head, head_dim);
    ColumnRun run = held.front();
    for (Term& t : run.terms) {
      // A head that begins elsewhere (the turned part of a larger one) is one where full() has it.
      const bool own = t.begin % head_dim == 0;
      if (t.stride != 1 ||
          (!own && !context_->may_meet(tp_rank_, 'r', static_cast<std::uint64_t>(t.value),
                                       static_cast<std::uint64_t>(head_dim), t.begin)))
        return torn(held, head, head_dim);
      const Index width = values().node(t.value).width;
      const SumTerm v = values().multiple(t.value);
      t.value = values().intern(
          {.op = ValueOp::rope,
           .a = v.value,
           .label = own ? label : label + ", the head at column " + std::to_string(t.begin),
           .n = head_dim,
           .width = width});
      t.summed = t.summed.scaled(v.coef);
    }
    sort_terms(run);
    return run;
  }
  // The columns are no head of the model: whichever pairs are turned, they are not its pairs.
  [[nodiscard]] ColumnRun torn(const std::vector<ColumnRun>& held, Index head,
                               Index head_dim) const {
    const Column first = read_column(values(), held.front());
    report_once("heads", context_->name(first.value),
                "local head " + std::to_string(head) + " holds " +
                    describe(*context_, SymbolicTensor{{}, held, tp_rank_}) +
                    ": rotary pairs of head " + std::to_string(first.begin / head_dim) +
                    " are on different ranks",
                "the cut runs through a head of " + std::to_string(head_dim) + " columns",
                "cut q and k at whole heads");
    return unknown("a head that is not whole", head_dim);
  }
};

}  // namespace tpsim::detail
