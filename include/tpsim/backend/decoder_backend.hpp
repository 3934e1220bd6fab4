// SPDX-License-Identifier: MIT
// What a backend must offer beside `Backend` for norms, rotary positions, attention and a whole
// decoder. Each requirement has a name, so that a missing operation fails to compile with it.
#pragma once

#include <cstdint>

#include <tpsim/backend/attention_spec.hpp>
#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/rope_spec.hpp>
#include <tpsim/core/rational.hpp>

namespace tpsim {

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh };

/// add(a, b), element by element, rounded like every operation; add_unrounded(a, b) keeps the sum
/// as wide as the backend computes, and rounded(x) is what add() would have made of it: a norm
/// that goes on from the unrounded sum of a residual, as fused kernels do.
template <class B>
concept BackendHasAdd = requires(B& b, const typename B::Tensor& x) {
  { b.add(x, x) } -> std::same_as<typename B::Tensor>;
  { b.add_unrounded(x, x) } -> std::same_as<typename B::Tensor>;
  { b.rounded(x) } -> std::same_as<typename B::Tensor>;
};

/// scale(x, factor): every element `factor` times, a rational number.
template <class B>
concept BackendHasScale = requires(B& b, const typename B::Tensor& x, Rational factor) {
  { b.scale(x, factor) } -> std::same_as<typename B::Tensor>;
};

/// Statistics of rows, in groups of `group` columns, the group of the whole model:
///   column_sums(x, group), square_sums(x, group): x [tokens, n group] -> [tokens, n]; of fewer
///     columns than a group, [tokens, 1]: this rank's share, which is partial until it is summed
///     over the ranks.
///   centered(x, sums, count): x - sums / count, each group of columns with its own sum.
///   rms_normalized(x, square_sums, count, eps): x / sqrt(square_sums / count + eps), likewise.
/// The columns of x are divided evenly over the columns of the statistics.
template <class B>
concept BackendHasStatistics = requires(B& b, const typename B::Tensor& x, Index n, double eps) {
  { b.column_sums(x, n) } -> std::same_as<typename B::Tensor>;
  { b.square_sums(x, n) } -> std::same_as<typename B::Tensor>;
  { b.centered(x, x, n) } -> std::same_as<typename B::Tensor>;
  { b.rms_normalized(x, x, n, eps) } -> std::same_as<typename B::Tensor>;
};

/// mul_columns(x, w): x [tokens, n rows], w [rows]: column c times w[c % rows].
template <class B>
concept BackendHasMulColumns =
    requires(B& b, const typename B::Tensor& x, const typename B::Param& w) {
      { b.mul_columns(x, w) } -> std::same_as<typename B::Tensor>;
    };

/// gelu(x) = x Phi(x), with the error function; gelu_tanh(x): its approximation by tanh.
template <class B>
concept BackendHasGelu = requires(B& b, const typename B::Tensor& x) {
  { b.gelu(x) } -> std::same_as<typename B::Tensor>;
  { b.gelu_tanh(x) } -> std::same_as<typename B::Tensor>;
};

/// rope(x, positions, head_dim, spec): x [tokens, heads head_dim]; every head of token t turned by
/// positions[t].
template <class B>
concept BackendHasRope = requires(B& b, const typename B::Tensor& x,
                                  const std::vector<Index>& positions, const RopeSpec& spec) {
  { b.rope(x, positions, Index{}, spec) } -> std::same_as<typename B::Tensor>;
};

/// attention(q, k, v, spec, sinks): one sequence, [tokens, heads v_head_dim]; sinks [heads] or
/// null.
template <class B>
concept BackendHasAttention = requires(B& b, const typename B::Tensor& x, const AttentionSpec& spec,
                                       const typename B::Param* sinks) {
  { b.attention(x, x, x, spec, sinks) } -> std::same_as<typename B::Tensor>;
};

/// Everything that a decoder needs.
template <class B>
concept DecoderBackend =
    VocabBackend<B> && BackendHasAdd<B> && BackendHasScale<B> && BackendHasStatistics<B> &&
    BackendHasMulColumns<B> && BackendHasGelu<B> && BackendHasRope<B> && BackendHasAttention<B>;

/// How many groups of `group` columns are `cols`: 1 for a share of a group.
/// @throws LayoutError (heads) for columns that end inside a group
[[nodiscard]] inline Index statistics_groups(Index cols, Index group) {
  if (group > 0 && cols > 0 && cols < group) return 1;
  if (group <= 0 || cols <= 0 || cols % group != 0)
    throw LayoutError(
        "statistics of columns that end inside a group",
        {{"heads", std::to_string(cols) + " columns are not groups of " + std::to_string(group)}});
  return cols / group;
}
/// Columns of x for each column of the statistics. @throws LayoutError (heads)
[[nodiscard]] inline Index require_statistics_fit(Shape x, Shape statistics) {
  if (statistics.rows() != x.rows() || statistics.cols() <= 0 || x.cols() % statistics.cols() != 0)
    throw LayoutError("statistics of another tensor",
                      {{"heads", "x is " + x.str() + ", its statistics " + statistics.str()}});
  return x.cols() / statistics.cols();
}
/// Shared by every backend's mul_columns(). @throws LayoutError (partners)
inline void require_columns_fit(Shape x, Shape w) {
  if (w.rank() != 1 || w.rows() <= 0 || x.cols() % w.rows() != 0)
    throw LayoutError("cannot multiply columns",
                      {{"partners", "x is " + x.str() + ", the weight " + w.str()}});
}
/// Shared by every backend's rope(). @throws LayoutError (heads)
inline void require_rope_fits(Shape x, const std::vector<Index>& positions, Index head_dim,
                              const RopeSpec& spec) {
  std::vector<Violation> broken = rope_violations(spec, head_dim);
  if (static_cast<Index>(positions.size()) != x.rows())
    broken.push_back({"heads", std::to_string(positions.size()) + " positions for " +
                                   std::to_string(x.rows()) + " tokens"});
  if (head_dim <= 0 || x.cols() % head_dim != 0)
    broken.push_back({"heads", std::to_string(x.cols()) + " columns are no heads of " +
                                   std::to_string(head_dim)});
  if (!broken.empty()) throw LayoutError("cannot turn these heads", std::move(broken));
}

/// The activation of an MLP. @throws LayoutError for a gelu on a backend that has none
template <Backend B>
[[nodiscard]] typename B::Tensor activate(B& b, Activation f, const typename B::Tensor& x) {
  if constexpr (BackendHasGelu<B>) {
    if (f == Activation::gelu) return b.gelu(x);
    if (f == Activation::gelu_tanh) return b.gelu_tanh(x);
  } else if (f != Activation::silu) {
    throw LayoutError("this backend has no gelu", {});
  }
  return b.silu(x);
}

}  // namespace tpsim
