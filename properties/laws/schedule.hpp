// SPDX-License-Identifier: MIT
// Law: results depend neither on the order in which ranks take their turns nor on the number of
// threads.
#pragma once

#include <properties/laws/observe.hpp>
#include <properties/threads.hpp>

namespace tpsim::properties {
namespace detail {

/// The results of all ranks as bits, rank by rank; a rank without a result adds nothing.
[[nodiscard]] inline std::vector<std::uint64_t> numeric_bits(const Subject& subject, const Case& c,
                                                             Schedule schedule, int threads) {
  using B = Subject::Numeric;
  const Threads scope(threads);
  EigenOptions options;
  options.values = {eigen::ValueKind::normalish, c.seed, {}};
  const auto runs = run_ranks<B>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<B>(rank, c.dtype, options); },
      [&](B& b) { return b.activation("x", Shape(subject.tokens, subject.input_width)); },
      [](std::size_t, B&, ModuleOn<B>&) {}, schedule);
  std::vector<std::uint64_t> out;
  for (const auto& y : runs.outputs)
    for (Index t = 0; y && t < y->value.rows(); ++t)
      for (Index j = 0; j < y->value.cols(); ++j)
        out.push_back(tpsim::detail::float_bits(*y, t, j));
  return out;
}
[[nodiscard]] inline std::vector<std::uint64_t> field_values(const Subject& subject, const Case& c,
                                                             Schedule schedule) {
  const auto context = std::make_shared<FieldContext>(FieldContext{c.seed});
  const auto runs = run_ranks<FieldBackend>(
      subject, subject.tensors,
      [&](int rank) { return std::make_unique<FieldBackend>(context, rank); },
      [&](FieldBackend& b) { return b.input("x", subject.tokens, subject.input_width); },
      [](std::size_t, FieldBackend&, ModuleOn<FieldBackend>&) {}, schedule);
  std::vector<std::uint64_t> out;
  for (const auto& y : runs.outputs)
    if (y) out.insert(out.end(), y->values.begin(), y->values.end());
  return out;
}

/// The same layer with products just large enough to be shared out to threads: on each rank more
/// than 2^16 of them, over several tiles of rows.
[[nodiscard]] inline Case widened(Case c) {
  LayerSpec& s = c.spec;
  const auto grow = [](Index size, Index least) { return size * ((least + size - 1) / size); };
  const Index ranks = s.tp, in = 128, rows = eigen::kTile + 1, half = eigen::kTile / 2 + 1;
  s.tokens = 16;
  if (s.layer == "qkv") {
    s.qkv.hidden = grow(s.qkv.hidden, in);
    s.qkv.head_dim = grow(s.qkv.head_dim, half);
  } else if (s.layer == "mlp") {
    s.qkv.hidden = grow(s.qkv.hidden, in);
    s.intermediate = grow(s.intermediate, half * ranks);
  } else if (is_decoder_layer(s.layer)) {
    s.qkv.hidden = grow(s.qkv.hidden, in);
    s.qkv.head_dim = grow(s.qkv.head_dim, half);
    s.intermediate = grow(s.intermediate, half * ranks);
  } else if (is_vocab_layer(s.layer)) {
    s.qkv.hidden = grow(s.qkv.hidden, in);
    s.vocab = grow(s.vocab, rows * ranks);
  } else {
    s.in = grow(s.in, s.layer == "row" ? in * ranks : in);
    s.out = grow(std::max<Index>(s.out, 1), s.layer == "column" ? rows * ranks : rows);
    for (MergedPart& part : s.parts) part.rows = grow(part.rows, half * ranks);
  }
  return c;
}

}  // namespace detail

[[nodiscard]] inline Verdict schedule_and_threads_do_not_matter(const Candidate& candidate,
                                                                const Case& c) {
  const std::unique_ptr<Subject> subject = candidate.subject(c);
  Verdict out;
  const auto numbers = detail::numeric_bits(*subject, c, Schedule::in_order(), 1);
  const auto values = detail::field_values(*subject, c, Schedule::in_order());
  for (const Schedule schedule : {Schedule::reversed(), Schedule::shuffled(c.seed)}) {
    const std::string how = schedule.order == Schedule::Order::reversed
                                ? "when ranks run in reverse"
                                : "when ranks run in random order";
    if (detail::numeric_bits(*subject, c, schedule, 1) != numbers) return {1, "other bits " + how};
    if (detail::field_values(*subject, c, schedule) != values)
      return {1, "other field values " + how};
    out.compared += static_cast<Index>(numbers.size() + values.size());
  }
  if (numbers.empty() || values.empty()) return {1, "no rank returned a result"};
#ifdef _OPENMP
  if (c.seed % 16 != 1) return out;     // the large layers take most of the time
  if (c.shape.has_value()) return out;  // nobody but its user can make a module larger
  const Case wide = detail::widened(c);
  const std::unique_ptr<Subject> large = candidate.subject(wide);
  const auto one = detail::numeric_bits(*large, wide, Schedule::in_order(), 1);
  const auto two = detail::numeric_bits(*large, wide, Schedule::in_order(), 2);
  out.compared += static_cast<Index>(one.size());
  if (one != two) return {out.compared, "other bits with 2 threads than with 1", wide};
#endif
  return out;
}

}  // namespace tpsim::properties
