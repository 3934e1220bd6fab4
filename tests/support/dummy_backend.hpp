// SPDX-License-Identifier: MIT
// The smallest backend, and what each missing operation is called.
//
// A tensor is its shape and nothing else, so a layer that compiles with it touches no element,
// copies no tensor and names no library.
#pragma once

#include <array>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/decoder_backend.hpp>

namespace tpsim::testing {

/// Move-only, like a tensor that owns device memory. Only the backend knows what is inside.
class DummyTensor {
 public:
  explicit DummyTensor(Shape shape) : shape_(shape) {}
  DummyTensor(DummyTensor&&) = default;
  DummyTensor& operator=(DummyTensor&&) = default;

 private:
  template <class, class>
  friend class BasicDummyBackend;
  Shape shape_;
};
class DummyParam {
 public:
  explicit DummyParam(Shape shape) : shape_(shape) {}
  DummyParam(DummyParam&&) = default;
  DummyParam& operator=(DummyParam&&) = default;

 private:
  template <class, class>
  friend class BasicDummyBackend;
  Shape shape_;
};

/// Every operation of `DecoderBackend` on shapes alone.
template <class T, class P>
class BasicDummyBackend {
 public:
  using Tensor = T;
  using Param = P;

  [[nodiscard]] Shape shape(const Tensor& x) const { return x.shape_; }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape_; }
  [[nodiscard]] DType dtype(const Tensor&) const { return DType::symbol; }
  Param empty(std::string_view, Shape shape) { return Param(shape); }
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) {
    require_copy_fits(param.shape_, dim, offset, full, start, length);
  }
  Tensor linear(const Tensor& x, const Param& w) {
    return Tensor(Shape(x.shape_.rows(), w.shape_.rows()));
  }
  Tensor add_bias(const Tensor& y, const Param&) { return Tensor(y.shape_); }
  Tensor mul(const Tensor& a, const Tensor&) { return Tensor(a.shape_); }
  Tensor silu(const Tensor& a) { return Tensor(a.shape_); }
  Tensor slice(const Tensor& x, int dim, Index, Index length) {
    return Tensor(x.shape_.with(dim, length));
  }
  Tensor concat(std::span<const Tensor* const> parts, int dim) {
    Index extent = 0;
    for (const Tensor* part : parts) extent += part->shape_.dim(dim);
    return Tensor(parts[0]->shape_.with(dim, extent));
  }
  Tensor reduce(Reduction, std::span<const Tensor* const> parts) {
    return Tensor(parts[0]->shape_);
  }
  void fill_zeros(Param& param, Index row, Index rows) {
    require_rows_fit(param.shape_, row, rows);
  }
  Tensor lookup(const Param& table, const std::vector<Index>& rows) {
    return Tensor(Shape(static_cast<Index>(rows.size()), table.shape_.cols()));
  }
  Tensor keep_tokens(const Tensor& x, const std::vector<bool>&) { return Tensor(x.shape_); }
  Tensor largest(const Tensor& x, Index first_id) {
    require_ids_exact(first_id, x.shape_.cols());
    return Tensor(x.shape_.with(1, 2));
  }
  Tensor best_of(const Tensor& pairs) {
    (void)require_pairs(pairs.shape_);
    return Tensor(pairs.shape_.with(1, 1));
  }

  Tensor add(const Tensor& a, const Tensor&) { return Tensor(a.shape_); }
  Tensor add_unrounded(const Tensor& a, const Tensor&) { return Tensor(a.shape_); }
  Tensor rounded(const Tensor& x) { return Tensor(x.shape_); }
  Tensor scale(const Tensor& x, Rational) { return Tensor(x.shape_); }
  Tensor column_sums(const Tensor& x, Index group) {
    return Tensor(x.shape_.with(1, statistics_groups(x.shape_.cols(), group)));
  }
  Tensor square_sums(const Tensor& x, Index group) { return column_sums(x, group); }
  Tensor centered(const Tensor& x, const Tensor& sums, Index) {
    (void)require_statistics_fit(x.shape_, sums.shape_);
    return Tensor(x.shape_);
  }
  Tensor rms_normalized(const Tensor& x, const Tensor& sums, Index count, double) {
    return centered(x, sums, count);
  }
  Tensor mul_columns(const Tensor& x, const Param& w) {
    require_columns_fit(x.shape_, w.shape_);
    return Tensor(x.shape_);
  }
  Tensor gelu(const Tensor& x) { return Tensor(x.shape_); }
  Tensor gelu_tanh(const Tensor& x) { return Tensor(x.shape_); }
  Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
              const RopeSpec& spec) {
    require_rope_fits(x.shape_, positions, head_dim, spec);
    return Tensor(x.shape_);
  }
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionSpec& spec,
                   const Param* sinks) {
    require_attention_fits(spec, q.shape_, k.shape_, v.shape_,
                           sinks ? std::optional(sinks->shape_.size()) : std::nullopt);
    return Tensor(q.shape_.with(1, spec.heads * spec.v_head_dim));
  }
};

using DummyBackend = BasicDummyBackend<DummyTensor, DummyParam>;
static_assert(Backend<DummyBackend> && VocabBackend<DummyBackend>);
static_assert(DecoderBackend<DummyBackend>);

/// A tensor that cannot be moved; the operations themselves still compile.
struct PinnedTensor {
  explicit PinnedTensor(Shape shape) : shape_(shape) {}
  PinnedTensor(PinnedTensor&&) = delete;
  Shape shape_;
};

// One operation removed each: a deleted declaration hides the one that is inherited.
using WithoutMovableTensor = BasicDummyBackend<PinnedTensor, DummyParam>;
struct WithoutShape : DummyBackend {
  void shape() = delete;
};
struct WithoutDtype : DummyBackend {
  void dtype() = delete;
};
struct WithoutEmpty : DummyBackend {
  void empty() = delete;
};
struct WithoutCopy : DummyBackend {
  void copy() = delete;
};
struct WithoutLinear : DummyBackend {
  void linear() = delete;
};
struct WithoutAddBias : DummyBackend {
  void add_bias() = delete;
};
struct WithoutMul : DummyBackend {
  void mul() = delete;
};
struct WithoutSilu : DummyBackend {
  void silu() = delete;
};
struct WithoutSlice : DummyBackend {
  void slice() = delete;
};
struct WithoutConcat : DummyBackend {
  void concat() = delete;
};
struct WithoutReduce : DummyBackend {
  void reduce() = delete;
};

// What the vocabulary's layers need is no requirement of the others.
struct WithoutFillZeros : DummyBackend {
  void fill_zeros() = delete;
};
struct WithoutLookup : DummyBackend {
  void lookup() = delete;
};
struct WithoutKeepTokens : DummyBackend {
  void keep_tokens() = delete;
};
static_assert(!BackendHasFillZeros<WithoutFillZeros> && !VocabBackend<WithoutFillZeros>);
static_assert(!BackendHasLookup<WithoutLookup> && !VocabBackend<WithoutLookup>);
static_assert(!BackendHasKeepTokens<WithoutKeepTokens> && !VocabBackend<WithoutKeepTokens>);
static_assert(Backend<WithoutFillZeros> && Backend<WithoutLookup> && Backend<WithoutKeepTokens>);

// A choice of tokens is no requirement of the vocabulary's layers.
struct WithoutLargest : DummyBackend {
  void largest() = delete;
};
struct WithoutBestOf : DummyBackend {
  void best_of() = delete;
};
static_assert(BackendHasArgmax<DummyBackend>);
static_assert(!BackendHasArgmax<WithoutLargest> && VocabBackend<WithoutLargest>);
static_assert(!BackendHasArgmax<WithoutBestOf> && VocabBackend<WithoutBestOf>);

// What norms, attention and a decoder need is no requirement of the vocabulary's layers.
struct WithoutAdd : DummyBackend {
  void add() = delete;
};
struct WithoutAddUnrounded : DummyBackend {
  void add_unrounded() = delete;
};
struct WithoutRounded : DummyBackend {
  void rounded() = delete;
};
struct WithoutScale : DummyBackend {
  void scale() = delete;
};
struct WithoutColumnSums : DummyBackend {
  void column_sums() = delete;
};
struct WithoutSquareSums : DummyBackend {
  void square_sums() = delete;
};
struct WithoutCentered : DummyBackend {
  void centered() = delete;
};
struct WithoutRmsNormalized : DummyBackend {
  void rms_normalized() = delete;
};
struct WithoutMulColumns : DummyBackend {
  void mul_columns() = delete;
};
struct WithoutGelu : DummyBackend {
  void gelu() = delete;
};
struct WithoutGeluTanh : DummyBackend {
  void gelu_tanh() = delete;
};
struct WithoutRope : DummyBackend {
  void rope() = delete;
};
struct WithoutAttention : DummyBackend {
  void attention() = delete;
};

/// Which named requirements hold that `DecoderBackend` adds, in the order in which it lists them.
template <class B>
inline constexpr std::array<bool, 7> decoder_requirements{
    BackendHasAdd<B>,  BackendHasScale<B>, BackendHasStatistics<B>, BackendHasMulColumns<B>,
    BackendHasGelu<B>, BackendHasRope<B>,  BackendHasAttention<B>};
/// Is `position` the one of them that fails, and does `DecoderBackend` fail with it?
template <class B>
[[nodiscard]] constexpr bool decoder_lacks_only(std::size_t position) {
  for (std::size_t i = 0; i < decoder_requirements<B>.size(); ++i)
    if (decoder_requirements<B>[i] == (i == position)) return false;
  return VocabBackend<B> && !DecoderBackend<B>;
}
static_assert(decoder_lacks_only<WithoutAdd>(0));
static_assert(decoder_lacks_only<WithoutAddUnrounded>(0));
static_assert(decoder_lacks_only<WithoutRounded>(0));
static_assert(decoder_lacks_only<WithoutScale>(1));
static_assert(decoder_lacks_only<WithoutColumnSums>(2));
static_assert(decoder_lacks_only<WithoutSquareSums>(2));
static_assert(decoder_lacks_only<WithoutCentered>(2));
static_assert(decoder_lacks_only<WithoutRmsNormalized>(2));
static_assert(decoder_lacks_only<WithoutMulColumns>(3));
static_assert(decoder_lacks_only<WithoutGelu>(4));
static_assert(decoder_lacks_only<WithoutGeluTanh>(4));
static_assert(decoder_lacks_only<WithoutRope>(5));
static_assert(decoder_lacks_only<WithoutAttention>(6));
static_assert(!decoder_lacks_only<DummyBackend>(0));

/// Which named requirements hold, in the order in which `Backend` lists them.
template <class B>
inline constexpr std::array<bool, 11> requirements{
    BackendHasTensorAndParam<B>, BackendHasShape<B>,   BackendHasEmpty<B>, BackendHasCopy<B>,
    BackendHasLinear<B>,         BackendHasAddBias<B>, BackendHasMul<B>,   BackendHasSilu<B>,
    BackendHasSlice<B>,          BackendHasConcat<B>,  BackendHasReduce<B>};

/// Is `position` the one requirement that fails, and does `Backend` fail with it?
template <class B>
[[nodiscard]] constexpr bool lacks_only(std::size_t position) {
  for (std::size_t i = 0; i < requirements<B>.size(); ++i)
    if (requirements<B>[i] == (i == position)) return false;
  return !Backend<B>;
}

static_assert(BackendHasTensorAndParam<DummyBackend>);
static_assert(BackendHasShape<DummyBackend>);
static_assert(BackendHasEmpty<DummyBackend>);
static_assert(BackendHasCopy<DummyBackend>);
static_assert(BackendHasLinear<DummyBackend>);
static_assert(BackendHasAddBias<DummyBackend>);
static_assert(BackendHasMul<DummyBackend>);
static_assert(BackendHasSilu<DummyBackend>);
static_assert(BackendHasSlice<DummyBackend>);
static_assert(BackendHasConcat<DummyBackend>);
static_assert(BackendHasReduce<DummyBackend>);

static_assert(lacks_only<WithoutMovableTensor>(0));
static_assert(lacks_only<WithoutShape>(1));
static_assert(lacks_only<WithoutDtype>(1));
static_assert(lacks_only<WithoutEmpty>(2));
static_assert(lacks_only<WithoutCopy>(3));
static_assert(lacks_only<WithoutLinear>(4));
static_assert(lacks_only<WithoutAddBias>(5));
static_assert(lacks_only<WithoutMul>(6));
static_assert(lacks_only<WithoutSilu>(7));
static_assert(lacks_only<WithoutSlice>(8));
static_assert(lacks_only<WithoutConcat>(9));
static_assert(lacks_only<WithoutReduce>(10));
static_assert(!lacks_only<DummyBackend>(0));

}  // namespace tpsim::testing
