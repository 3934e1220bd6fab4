// SPDX-License-Identifier: MIT
// The operations of the transition table on any backend: on one rank, and on the logical values.
#pragma once

#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/backend/field/field_backend.hpp>
#include <tpsim/backend/symbolic/symbolic_backend.hpp>

#include <tests/support/symbolic_fixture.hpp>
#include <tests/support/transition_draw.hpp>

namespace tpsim::test {

inline constexpr Index scale_by = 5;  // no tp of these tests

[[nodiscard]] inline bool looks_up(TableOp op) {
  return op == TableOp::lookup || op == TableOp::lookup_unmasked;
}
[[nodiscard]] inline bool takes_weight(TableOp op) { return op == TableOp::linear || looks_up(op); }
[[nodiscard]] inline bool takes_row(TableOp op) {  // a parameter of one dimension
  return op == TableOp::add_bias || op == TableOp::mul_columns;
}

// What the two backends spell differently.
[[nodiscard]] inline FieldTensor add(FieldBackend& b, const FieldTensor& x, const FieldTensor& y) {
  const std::vector<const FieldTensor*> both{&x, &y};
  return b.reduce(Reduction::sum, both);
}
[[nodiscard]] inline SymbolicTensor add(SymbolicBackend& b, const SymbolicTensor& x,
                                        const SymbolicTensor& y) {
  return b.add(x, y);
}
[[nodiscard]] inline gf61::Element in_field(Rational c) {
  const auto size = static_cast<gf61::Element>(std::abs(c.num()));
  const gf61::Element num = c.num() < 0 ? gf61::neg(size) : size;
  return gf61::mul(num, gf61::inverse(static_cast<gf61::Element>(c.den())));
}
[[nodiscard]] inline FieldTensor scaled(FieldBackend& /*b*/, FieldTensor x, Rational c) {
  for (gf61::Element& v : x.values) v = gf61::mul(v, in_field(c));
  return x;
}
[[nodiscard]] inline SymbolicTensor scaled(SymbolicBackend& b, const SymbolicTensor& x,
                                           Rational c) {
  return b.scale(x, c);
}
[[nodiscard]] inline FieldParam scaled(FieldBackend& b, const FieldParam& w, Rational c) {
  return b.stored(w.shape, scaled(b, b.read(w), c).values);
}
[[nodiscard]] inline SymbolicParam scaled(SymbolicBackend& b, const SymbolicParam& w, Rational c) {
  return b.scale(w, c);
}

/// The entries of x along `dim`, in that order.
template <Backend B>
[[nodiscard]] typename B::Tensor select(B& b, const typename B::Tensor& x, int dim,
                                        const Entries& entries) {
  std::vector<typename B::Tensor> parts;
  if (entries.empty()) return b.slice(x, dim, 0, 0);
  for (const Index i : entries) parts.push_back(b.slice(x, dim, i, 1));
  std::vector<const typename B::Tensor*> pointers;
  for (const auto& p : parts) pointers.push_back(&p);
  return b.concat(pointers, dim);
}
/// A parameter that holds the entries of `full` along `dim`, loaded one by one.
template <Backend B>
[[nodiscard]] typename B::Param loaded(B& b, const FullTensor& full, int dim,
                                       const Entries& entries) {
  const auto count = static_cast<Index>(entries.size());
  typename B::Param param = b.empty("param", full.shape().with(dim, count));
  for (Index i = 0; i < count; ++i)
    b.copy(param, dim, i, full, entries[static_cast<std::size_t>(i)], 1);
  return param;
}
template <Backend B>
[[nodiscard]] typename B::Param loaded(B& b, const FullTensor& full) {
  typename B::Param param = b.empty("param", full.shape());
  b.copy(param, 0, 0, full, 0, full.shape().rows());
  return param;
}
/// The second operand of linear, add_bias, mul_columns or lookup.
[[nodiscard]] inline FullTensor parameter(TableOp op, const Draw& d) {
  if (looks_up(op)) return full_tensor("table.weight", {d.n, d.rows});
  if (op == TableOp::mul_columns) return full_tensor("gain.weight", Shape(d.n));
  return op == TableOp::linear ? full_tensor("next.weight", {d.rows, d.n})
                               : full_tensor("a.bias", Shape(d.n));
}
/// What a rank holds of it; nothing where rank 0 alone adds a bias.
template <Backend B>
[[nodiscard]] std::optional<typename B::Param> held_parameter(B& b, const Transition& row,
                                                              const Draw& d, int rank) {
  if (!takes_weight(row.op) && !takes_row(row.op)) return std::nullopt;
  const FullTensor full = parameter(row.op, d);
  switch (row.b.kind) {
    case StateKind::sharded:
      return loaded(b, full, row.b.dim, d.part(row.b, full.shape().dim(row.b.dim), rank));
    case StateKind::partial:
      return scaled(b, loaded(b, full), Rational(1, d.tp));
    case StateKind::unwritten:
      return b.empty("param", full.shape());
    case StateKind::on_rank0:
      if (rank != 0) return std::nullopt;
      [[fallthrough]];
    default:
      return loaded(b, full);
  }
}

/// Every id of the table, one token each.
[[nodiscard]] inline std::vector<Index> every_id(const Draw& d) {
  std::vector<Index> ids(static_cast<std::size_t>(d.n));
  std::iota(ids.begin(), ids.end(), Index{0});
  return ids;
}
/// The ids that the rank takes for its own are those of its declared rows, whatever it holds.
template <Backend B>
[[nodiscard]] typename B::Tensor rank_lookup(B& b, const Transition& row, const Draw& d, int rank,
                                             const typename B::Param& table) {
  ShardState mask = row.b;
  if (mask.map == ShardMap::other) mask.map = ShardMap::any;
  Entries mine = every_id(d);
  if (mask.kind == StateKind::sharded) mine = d.part(mask, d.n, rank);
  std::vector<Index> rows(static_cast<std::size_t>(d.n), 0);
  std::vector<bool> keep(rows.size(), false);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    rows[static_cast<std::size_t>(mine[i])] = static_cast<Index>(i);
    keep[static_cast<std::size_t>(mine[i])] = true;
  }
  typename B::Tensor y = b.lookup(table, rows);
  return row.op == TableOp::lookup ? b.keep_tokens(y, keep) : std::move(y);
}

// Heads of tp columns: blocks are whole heads.
[[nodiscard]] inline RopeSpec rope_spec(const Draw& d) {
  return {.rotary_dim = d.tp % 2 == 0 ? d.tp : d.tp - 1};
}
template <Backend B>
[[nodiscard]] typename B::Tensor attend(B& b, const Draw& d, const typename B::Tensor& q,
                                        const typename B::Tensor& kv) {
  const Index before = b.shape(kv).rows() - b.shape(q).rows();
  return b.attention(q, kv, kv,
                     {.heads = b.shape(q).cols() / d.tp,
                      .kv_heads = b.shape(kv).cols() / d.tp,
                      .head_dim = d.tp,
                      .v_head_dim = d.tp,
                      .scale_dim = d.tp,
                      .first_position = std::max<Index>(0, before)},
                     nullptr);
}
/// Of a rank's tokens, which are cut like `state`.
[[nodiscard]] inline std::vector<Index> token_positions(const ShardState& state, const Draw& d,
                                                        int rank) {
  if (state.kind == StateKind::sharded && state.dim == 0) return d.part(state, d.tokens, rank);
  std::vector<Index> all(static_cast<std::size_t>(d.tokens));
  std::iota(all.begin(), all.end(), Index{0});
  return all;
}
inline constexpr double norm_eps = 0.5;

/// The operation on one rank. `w` is the second operand of linear and add_bias, `y` that of others.
template <Backend B>
[[nodiscard]] typename B::Tensor rank_step(B& b, Communicator& comm, const Transition& row,
                                           const Draw& d, typename B::Tensor x,
                                           const typename B::Tensor& y,
                                           const std::optional<typename B::Param>& w) {
  using enum TableOp;
  const BackendOps<B> ops(b);
  const std::vector<const typename B::Tensor*> both{&x, &y};
  const Buffer io = ops.buffer(x);
  switch (row.op) {
    case add:
    case residual_add:
      return test::add(b, x, y);
    case add_bias:
      return w ? b.add_bias(x, *w) : x;
    case mul:
      return b.mul(x, y);
    case scale:
      return scaled(b, x, scale_by);
    case share:
      return scaled(b, x, Rational(1, d.tp));
    case linear:
      return b.linear(x, *w);
    case lookup:
    case lookup_unmasked:
      return rank_lookup(b, row, d, comm.rank(), *w);
    case silu:
      return b.silu(x);
    case mul_columns:
      return b.mul_columns(x, *w);
    case norm:
      return b.rms_normalized(x, b.square_sums(x, d.n), d.n, norm_eps);
    case norm_exchange:
      return b.rms_normalized(x, tpsim::all_reduce(b, comm, b.square_sums(x, d.n)), d.n, norm_eps);
    case rope:
      return b.rope(x, token_positions(row.a, d, comm.rank()), d.tp, rope_spec(d));
    case attention:
      return attend(b, d, x, y);
    case slice:
      return b.slice(x, 1, 1, d.n - 2);
    case cut:
      return select(b, x, row.b.dim, d.part(row.b, b.shape(x).dim(row.b.dim), comm.rank()));
    case concat:
      return b.concat(both, 1);
    case contract:
      return x;
    case all_reduce:
      comm.all_reduce(io, io);
      return x;
    case all_reduce_max:
      comm.all_reduce(io, io, Reduction::max);
      return x;
    case all_gather_columns:
      comm.all_gather(io, io, 1);
      return x;
    case all_gather_tokens:
      comm.all_gather(io, io, 0);
      return x;
    case gather_columns:
      comm.gather(io, comm.rank() == 0 ? io : ops.none(), 0, 1);
      return x;
    case reduce_scatter_columns:
      comm.reduce_scatter(io, io, 1);
      return x;
    case reduce_scatter_tokens:
      comm.reduce_scatter(io, io, 0);
      return x;
    case broadcast:
      comm.broadcast(io, io, 0);
      return x;
    case all_to_all_columns:
      comm.all_to_all(io, io, 1);
      return x;
  }
  return x;
}

/// The operation on the logical values: collectives, cuts and declarations leave them as they are.
template <Backend B>
[[nodiscard]] typename B::Tensor full_step(B& b, const Transition& row, const Draw& d,
                                           const typename B::Tensor& x,
                                           const typename B::Tensor& y) {
  using enum TableOp;
  const std::vector<const typename B::Tensor*> both{&x, &y};
  switch (row.op) {
    case add:
    case residual_add:
      return test::add(b, x, y);
    case add_bias:
      return b.add_bias(x, loaded(b, parameter(row.op, d)));
    case mul:
      return b.mul(x, y);
    case scale:
      return scaled(b, x, scale_by);
    case linear:
      return b.linear(x, loaded(b, parameter(row.op, d)));
    case lookup:
    case lookup_unmasked:
      return b.lookup(loaded(b, parameter(row.op, d)), every_id(d));
    case silu:
      return b.silu(x);
    case mul_columns:
      return b.mul_columns(x, loaded(b, parameter(row.op, d)));
    case norm:
    case norm_exchange:
      return b.rms_normalized(x, b.square_sums(x, d.n), d.n, norm_eps);
    case rope:
      return b.rope(x, token_positions({}, d, 0), d.tp, rope_spec(d));
    case attention:
      return attend(b, d, x, y);
    case slice:
      return b.slice(x, 1, 1, d.n - 2);
    case concat:
      return b.concat(both, 1);
    default:
      return x;
  }
}

/// c of a partial state.
[[nodiscard]] inline Rational factor(const ShardState& s, const Draw& d) {
  return s.factor == SumFactor::one        ? Rational(1)
         : s.factor == SumFactor::per_rank ? Rational(1, d.tp)
                                           : Rational(1, d.copies());
}

}  // namespace tpsim::test
