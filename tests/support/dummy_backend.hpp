// SPDX-License-Identifier: MIT
// The smallest backend, and what each missing operation is called.
//
// A tensor is its shape and nothing else, so a layer that compiles with it touches no element,
// copies no tensor and names no library.
#pragma once

#include <array>

#include <tpsim/backend/backend.hpp>

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

/// Every operation of `Backend` on shapes alone.
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
};

using DummyBackend = BasicDummyBackend<DummyTensor, DummyParam>;
static_assert(Backend<DummyBackend>);

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
