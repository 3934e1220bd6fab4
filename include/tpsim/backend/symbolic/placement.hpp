// SPDX-License-Identifier: MIT
// Reading a result: what a tensor is, whether it is the expected one, how the ranks share it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tpsim/backend/symbolic/context.hpp>
#include <tpsim/backend/symbolic/tensor.hpp>
#include <tpsim/backend/symbolic/value_difference.hpp>

namespace tpsim {

/// The tensor column by column, left to right, each run taken as one value.
[[nodiscard]] inline std::vector<Column> canonical(SymbolicContext& context,
                                                   const SymbolicTensor& x) {
  std::vector<Column> out;
  for (const ColumnRun& run : x.columns) out.push_back(read_column(context.values(), run));
  return out;
}

/// The columns of x at `positions`, in that order.
[[nodiscard]] inline SymbolicTensor select_columns(const SymbolicTensor& x, const Runs& positions) {
  SymbolicTensor out{x.tokens, {}, x.rank};
  for (const Run& p : positions) {
    for (Index done = 0; done < p.length;) {
      Index at = p.at(done), take = 1;
      std::size_t i = 0;
      while (i < x.columns.size() && at >= x.columns[i].length) at -= x.columns[i++].length;
      if (i == x.columns.size() || at < 0)
        throw LayoutError("no column " + std::to_string(p.at(done)),
                          {{"cover", "the tensor has " + std::to_string(x.width()) + " columns"}});
      if (p.stride > 0)
        take = std::min(p.length - done, (x.columns[i].length - 1 - at) / p.stride + 1);
      ColumnRun run = x.columns[i].part(at, x.columns[i].length - at);
      for (Term& t : run.terms) t.stride = take == 1 ? 1 : t.stride * p.stride;
      run.length = take;
      out.append(std::move(run));
      done += take;
    }
  }
  return out;
}

/// "Lin(x, o_proj.weight) columns [0, 4): [0, 512) of 1024 summed so far"
[[nodiscard]] inline std::string describe(SymbolicContext& context, const ColumnRun& run) {
  const Column c = read_column(context.values(), run);
  Runs indices;
  indices.append({c.begin, c.length, c.stride});
  std::string out = context.name(c.value) + " columns " + indices.str();
  if (c.complete) return out;
  out += ": ";
  for (const Term& t : run.terms) {
    if (run.terms.size() > 1) out += context.name(t.value) + " ";
    if (!t.summed.complete()) return out + t.summed.str() + " summed so far";
    out += run.terms.size() > 1 ? "whole, " : "";
  }
  return out;
}
[[nodiscard]] inline std::string describe(SymbolicContext& context, const SymbolicTensor& x,
                                          std::size_t most = 3) {
  std::string out;
  for (std::size_t i = 0; i < x.columns.size() && i < most; ++i)
    out += (i == 0 ? "" : "; ") + describe(context, x.columns[i]);
  if (x.columns.size() > most) out += "; ... (" + std::to_string(x.columns.size()) + " runs)";
  return out.empty() ? "nothing" : out;
}

/// Where a tensor is not the expected one.
struct Mismatch {
  Index column = 0;  ///< first column that differs; -1: the sizes or tokens differ
  std::string text;  ///< found and expected
};

/// Nothing when every column of `actual` is complete and is the same column of the same value as
/// in `expected`.
[[nodiscard]] inline std::optional<Mismatch> compare(SymbolicContext& context,
                                                     const SymbolicTensor& actual,
                                                     const SymbolicTensor& expected) {
  if (!(actual.tokens == expected.tokens))
    return Mismatch{-1,
                    "holds tokens " + actual.tokens.str() + ", expected " + expected.tokens.str()};
  if (actual.width() != expected.width())
    return Mismatch{-1, "has " + std::to_string(actual.width()) + " columns, expected " +
                            std::to_string(expected.width())};
  std::optional<Mismatch> found;
  Index position = 0;
  const std::vector<const SymbolicTensor*> both{&actual, &expected};
  for_each_stretch(both, [&](Index length, const auto& at) {
    if (found) return;
    const ColumnRun a = at[0].run->part(at[0].offset, length);
    const ColumnRun b = at[1].run->part(at[1].offset, length);
    const Column left = read_column(context.values(), a), right = read_column(context.values(), b);
    if (left != right || !left.complete) {
      const bool later = left.complete && right.complete && left.value == right.value &&
                         left.begin == right.begin;  // the strides differ
      found = Mismatch{position + (later ? 1 : 0),
                       "holds " + describe(context, a) + ", expected " + describe(context, b)};
      const auto long_name = [&](ValueId id) {
        constexpr std::size_t readable = 120;
        return context.values().name(id).size() > readable;
      };
      if (left.complete && right.complete && left.value != right.value &&
          context.values().node(left.value).known &&
          (long_name(left.value) || long_name(right.value)))
        found->text = difference_text(context.values(), left.value, right.value);
    }
    position += length;
  });
  return found;
}

enum class PlacementKind : std::uint8_t { replicated, sharded, partial, mixed };

/// How the ranks of a group share a tensor.
struct Placement {
  PlacementKind kind = PlacementKind::mixed;
  std::string text;
};

/// @param ranks  one tensor of each rank, in rank order
[[nodiscard]] inline Placement placement(SymbolicContext& context,
                                         std::span<const SymbolicTensor* const> ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const ColumnRun& run : ranks[r]->columns)
      for (const Term& t : run.terms)
        if (!t.summed.uniform() && !read_column(context.values(), run).complete)
          return {PlacementKind::partial, "partial: on rank " + std::to_string(r) + ", columns " +
                                              t.summed.str() + " of " + context.name(t.value) +
                                              " summed so far"};
  bool equal = true;
  for (const SymbolicTensor* t : ranks) equal = equal && !compare(context, *t, *ranks[0]);
  if (equal) return {PlacementKind::replicated, "replicated"};

  std::map<ValueId, std::vector<Coverage>> held;  // which columns of each value the ranks hold
  for (const SymbolicTensor* t : ranks)
    for (const Column& c : canonical(context, *t)) {
      Runs indices;
      indices.append({c.begin, c.length, c.stride});
      held[c.value].push_back(Coverage::of(
          indices, std::max(context.values().node(c.value).width, c.begin + c.length)));
    }
  Placement out{PlacementKind::sharded, ""};
  for (const auto& [value, parts] : held) {
    std::vector<const Coverage*> pointers;
    for (const Coverage& c : parts) pointers.push_back(&c);
    const Coverage all = Coverage::sum(pointers);
    const std::optional<Rational> times = all.uniform();
    if (!times) out.kind = PlacementKind::mixed;
    out.text += (out.text.empty() ? "" : "; ") + context.name(value) + " ";
    out.text += !times ? "columns held: " + all.str()
                       : "sharded over columns, each on " + times->str() +
                             (*times == Rational(1) ? " rank" : " ranks");
  }
  return out;
}

}  // namespace tpsim
