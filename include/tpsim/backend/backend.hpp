// SPDX-License-Identifier: MIT
// What a backend must offer: a tensor, a parameter, and the operations that layers use. Each
// requirement has a name, so that a missing operation fails to compile with that name.
#pragma once

#include <concepts>
#include <span>
#include <string_view>
#include <vector>

#include <tpsim/comm/communicator.hpp>
#include <tpsim/layout/full_tensor.hpp>

namespace tpsim {

/// `Tensor` is an activation [tokens, columns]; `Param` is what a rank holds of its weights. Both
/// are movable values; only the backend sees their elements.
template <class B>
concept BackendHasTensorAndParam =
    std::movable<typename B::Tensor> && std::movable<typename B::Param>;

/// shape(t) of tensors and parameters, dtype(t) of tensors.
template <class B>
concept BackendHasShape =
    requires(const B& b, const typename B::Tensor& x, const typename B::Param& w) {
      { b.shape(x) } -> std::same_as<Shape>;
      { b.shape(w) } -> std::same_as<Shape>;
      { b.dtype(x) } -> std::same_as<DType>;
    };

/// empty(name, shape): a parameter full of poison, different on every rank, never zeros.
template <class B>
concept BackendHasEmpty = requires(B& b, std::string_view name, Shape shape) {
  { b.empty(name, shape) } -> std::same_as<typename B::Param>;
};

/// copy(param, dim, offset, full, start, length): entries [offset, offset + length) of `param`
/// along `dim` := entries [start, start + length) of `full` along `dim`; the other dimension
/// whole and of equal extent. Throws LayoutError (cover) when either side is out of bounds.
template <class B>
concept BackendHasCopy = requires(B& b, typename B::Param& param, int dim, const FullTensor& full,
                                  Index i) { b.copy(param, dim, i, full, i, i); };

/// linear(x, w): x [tokens, in], w [out, in] -> x w^T [tokens, out].
template <class B>
concept BackendHasLinear = requires(B& b, const typename B::Tensor& x, const typename B::Param& w) {
  { b.linear(x, w) } -> std::same_as<typename B::Tensor>;
};

/// add_bias(y, bias): y [tokens, out] + bias [out] on every row.
template <class B>
concept BackendHasAddBias =
    requires(B& b, const typename B::Tensor& y, const typename B::Param& bias) {
      { b.add_bias(y, bias) } -> std::same_as<typename B::Tensor>;
    };

/// mul(a, b), element by element; silu(a) = a * sigmoid(a).
template <class B>
concept BackendHasMul = requires(B& b, const typename B::Tensor& x) {
  { b.mul(x, x) } -> std::same_as<typename B::Tensor>;
};
template <class B>
concept BackendHasSilu = requires(B& b, const typename B::Tensor& x) {
  { b.silu(x) } -> std::same_as<typename B::Tensor>;
};

/// slice(x, dim, start, length) and concat(parts, dim): dim 0 is tokens, 1 columns.
template <class B>
concept BackendHasSlice = requires(B& b, const typename B::Tensor& x, int dim, Index i) {
  { b.slice(x, dim, i, i) } -> std::same_as<typename B::Tensor>;
};
template <class B>
concept BackendHasConcat =
    requires(B& b, std::span<const typename B::Tensor* const> parts, int dim) {
      { b.concat(parts, dim) } -> std::same_as<typename B::Tensor>;
    };

/// reduce(op, parts): what a reducing collective computes, in the order given.
template <class B>
concept BackendHasReduce =
    requires(B& b, Reduction op, std::span<const typename B::Tensor* const> parts) {
      { b.reduce(op, parts) } -> std::same_as<typename B::Tensor>;
    };

/// Everything that the parallel linear family and the gated MLP need.
template <class B>
concept Backend =
    BackendHasTensorAndParam<B> && BackendHasShape<B> && BackendHasEmpty<B> && BackendHasCopy<B> &&
    BackendHasLinear<B> && BackendHasAddBias<B> && BackendHasMul<B> && BackendHasSilu<B> &&
    BackendHasSlice<B> && BackendHasConcat<B> && BackendHasReduce<B>;

/// fill_zeros(param, row, rows): rows [row, row + rows) of `param` := 0, the padding of a tensor
/// that is smaller than the ranks' parameters together.
template <class B>
concept BackendHasFillZeros =
    requires(B& b, typename B::Param& param, Index i) { b.fill_zeros(param, i, i); };

/// lookup(table, rows): token t is row rows[t] of `table` [rows, columns] -> [tokens, columns]. A
/// row outside the table reads its nearest row, as an index that is clamped: never elsewhere.
template <class B>
concept BackendHasLookup =
    requires(B& b, const typename B::Param& table, const std::vector<Index>& rows) {
      { b.lookup(table, rows) } -> std::same_as<typename B::Tensor>;
    };

/// keep_tokens(x, keep): token t as it is where keep[t], else zeros.
template <class B>
concept BackendHasKeepTokens =
    requires(B& b, const typename B::Tensor& x, const std::vector<bool>& keep) {
      { b.keep_tokens(x, keep) } -> std::same_as<typename B::Tensor>;
    };

/// What the layers of the vocabulary need beside it.
template <class B>
concept VocabBackend =
    Backend<B> && BackendHasFillZeros<B> && BackendHasLookup<B> && BackendHasKeepTokens<B>;

/// The row of a table of `rows` rows that a lookup of `row` reads.
/// @throws LayoutError (cover) for a table without rows
[[nodiscard]] inline Index clamped_row(Index row, Index rows) {
  if (rows <= 0)
    throw LayoutError("a lookup in a table without rows",
                      {{"cover", "there is no row " + std::to_string(row)}});
  return row < 0 ? 0 : row < rows ? row : rows - 1;
}
/// Shared by every backend's fill_zeros(). @throws LayoutError (cover)
inline void require_rows_fit(Shape param, Index row, Index rows) {
  if (row < 0 || rows < 0 || row > param.rows() - rows)
    throw LayoutError(
        "cannot fill rows with zeros",
        {{"cover", "the parameter " + param.str() + " has no rows [" + std::to_string(row) + ", " +
                       std::to_string(row + rows) + ")"}});
}
/// One for each token. @throws LayoutError (divide)
inline void require_keep_fits(Index tokens, const std::vector<bool>& keep) {
  if (static_cast<Index>(keep.size()) != tokens)
    throw LayoutError("a mask needs one entry for each token",
                      {{"divide", std::to_string(keep.size()) + " entries for " +
                                      std::to_string(tokens) + " tokens"}});
}

/// Shared by every backend's copy(): both ends inside, the other dimension equal.
/// @throws LayoutError (cover)
inline void require_copy_fits(Shape param, int dim, Index offset, const FullTensor& full,
                              Index start, Index length) {
  const Shape from = full.shape();
  const int other = 1 - dim;
  std::vector<Violation> broken;
  const auto outside = [&](std::string_view what, Shape s, Index begin) {
    if (begin < 0 || length < 0 || begin > s.dim(dim) - length)
      broken.push_back({"cover", std::string(what) + " " + s.str() + " has no entries [" +
                                     std::to_string(begin) + ", " + std::to_string(begin + length) +
                                     ") in dimension " + std::to_string(dim)});
  };
  outside("the parameter", param, offset);
  outside(full.name(), from, start);
  if (param.dim(other) != from.dim(other) || param.rank() != from.rank())
    broken.push_back({"cover", full.name() + " " + from.str() + " does not fit the parameter " +
                                   param.str() + " in dimension " + std::to_string(other)});
  if (!broken.empty()) throw LayoutError("cannot copy from " + full.name(), std::move(broken));
}

}  // namespace tpsim
