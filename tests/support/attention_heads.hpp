// SPDX-License-Identifier: MIT
// Attention of a small model on one rank or whole, in which each number can be varied.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <tests/support/symbolic_fixture.hpp>

namespace tpsim::test {

/// 8 query heads over 4 kv heads of 4 columns, values of 2; what a rank does can be varied.
struct Heads {
  FullTensor q_proj = full_tensor("q_proj.weight", {32, 10});
  FullTensor k_proj = full_tensor("k_proj.weight", {16, 10});
  FullTensor v_proj = full_tensor("v_proj.weight", {8, 10});
  FullTensor sink = full_tensor("sinks", Shape(8));
  RopeSpec rope{.rotary_dim = 4};
  Index context = 5;
  Index scale_dim = 4;
  Index first_position = 0;  ///< of the rope
  std::optional<Index> window;
  bool alibi = false, sinks = false;
  Index alibi_heads = 8;
  int tp = 1, rank = 0;  ///< -1: full()
  std::optional<Index> kv_head, first_slope, first_sink, first_column;

  [[nodiscard]] Index heads() const { return 8 / tp; }
  [[nodiscard]] Index first_head() const { return rank < 0 ? 0 : rank * heads(); }
  [[nodiscard]] Index kv_heads() const { return std::max(1, 4 / tp); }
  [[nodiscard]] Index first_kv() const { return kv_head.value_or(first_head() / 2); }
  [[nodiscard]] SymbolicTensor project(SymbolicBackend& b, const SymbolicTensor& x,
                                       const FullTensor& w, Index first, Index count) const {
    return b.linear(x, held(b, w, first, count, 0, 10));
  }
  [[nodiscard]] std::vector<Index> positions(const SymbolicTensor& x) const {
    std::vector<Index> out;
    for (const Run& run : x.tokens)
      for (Index i = 0; i < run.length; ++i) out.push_back(first_position + run.at(i));
    return out;
  }
  [[nodiscard]] SymbolicTensor query(SymbolicBackend& b, const SymbolicTensor& x) const {
    const Index first = first_column.value_or(first_head() * 4);
    return b.rope(project(b, x, q_proj, first, heads() * 4), positions(x), 4, rope);
  }
  [[nodiscard]] SymbolicTensor key(SymbolicBackend& b, const SymbolicTensor& x) const {
    return b.rope(project(b, x, k_proj, first_kv() * 4, kv_heads() * 4), positions(x), 4, rope);
  }
  [[nodiscard]] SymbolicTensor value(SymbolicBackend& b, const SymbolicTensor& x) const {
    return project(b, x, v_proj, first_kv() * 2, kv_heads() * 2);
  }
  [[nodiscard]] SymbolicTensor attend(SymbolicBackend& b, const SymbolicTensor& q,
                                      const SymbolicTensor& k, const SymbolicTensor& v) const {
    AttentionSpec spec{.heads = heads(),
                       .kv_heads = kv_heads(),
                       .head_dim = 4,
                       .v_head_dim = 2,
                       .scale_dim = scale_dim,
                       .first_position = k.tokens.size() - q.tokens.size(),
                       .window = window};
    if (alibi) spec.alibi = Alibi{first_slope.value_or(first_head()), alibi_heads};
    const SymbolicParam rows = held(b, sink, first_sink.value_or(first_head()), heads(), 0, 1);
    return b.attention(q, k, v, spec, sinks ? &rows : nullptr);
  }
  [[nodiscard]] SymbolicTensor input(SymbolicBackend& b) const { return b.input("x", context, 10); }
  [[nodiscard]] SymbolicTensor forward(SymbolicBackend& b) const {
    const SymbolicTensor x = input(b);
    return attend(b, query(b, x), key(b, x), value(b, x));
  }
  [[nodiscard]] Heads on(int ranks, int at) const {
    Heads h = *this;
    h.tp = ranks;
    h.rank = at;
    return h;
  }
  [[nodiscard]] SymbolicTensor full(SymbolicContext& c) const {
    SymbolicBackend b(c, -1);
    return on(1, -1).forward(b);
  }
};

}  // namespace tpsim::test
