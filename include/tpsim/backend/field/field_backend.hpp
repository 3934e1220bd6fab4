// SPDX-License-Identifier: MIT
// The exact backend: the operations of a layer over GF(2^61-1), nonlinear functions as oracles.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/field/kernel.hpp>
#include <tpsim/backend/field/oracle.hpp>
#include <tpsim/backend/field/param.hpp>

namespace tpsim {

/// What all ranks of one check share. Everything random follows from the seed.
struct FieldContext {
  std::uint64_t seed = 0;
};

/// [tokens, cols], row-major, canonical residues.
struct FieldTensor {
  Index tokens = 0, cols = 0;
  std::vector<gf61::Element> values;

  FieldTensor() = default;
  FieldTensor(Index rows, Index columns)
      : tokens(rows), cols(columns), values(static_cast<std::size_t>(rows * columns)) {}
  [[nodiscard]] gf61::Element at(Index t, Index c) const {
    return values[static_cast<std::size_t>(t * cols + c)];
  }
  [[nodiscard]] gf61::Element* row(Index t) { return values.data() + t * cols; }
  [[nodiscard]] const gf61::Element* row(Index t) const { return values.data() + t * cols; }
  friend bool operator==(const FieldTensor&, const FieldTensor&) = default;
};

/// What one backend object has done, for the soundness bound and for reports.
struct FieldCounters {
  std::uint64_t oracle_calls = 0;
  std::uint64_t comparisons = 0;  ///< of two values by size (maximum)
  std::uint64_t macs = 0;         ///< products in linear()
};

/// One rank's backend. Two values are equal or not: there is no tolerance.
/// Weights are not stored: an element is a random function of (seed, logical tensor, canonical
/// row, column), made while it is used. `Oracle` is a parameter only so that tests can show what
/// weaker oracles miss.
template <class Oracle = SipOracle>
class BasicFieldBackend {
 public:
  using Tensor = FieldTensor;
  using Param = FieldParam;

  BasicFieldBackend(std::shared_ptr<const FieldContext> context, int tp_rank)
      : BasicFieldBackend(context, tp_rank, Oracle(context->seed)) {}
  BasicFieldBackend(std::shared_ptr<const FieldContext> context, int tp_rank, Oracle oracle)
      : context_(std::move(context)),
        oracle_(std::move(oracle)),
        poison_(row_key(tensor_key(context_->seed, hash_name("poison")), tp_rank)) {}

  [[nodiscard]] const FieldCounters& counters() const { return counters_; }

  [[nodiscard]] Shape shape(const Tensor& x) const { return {x.tokens, x.cols}; }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape; }
  [[nodiscard]] DType dtype(const Tensor&) const { return DType::field; }

  /// Unwritten elements are nonzero random values of (seed, rank, how many parameters this object
  /// has made before, row, column): different in every parameter of every rank.
  [[nodiscard]] Param empty(std::string_view /*name*/, Shape shape) {
    return {shape, row_key(poison_, params_++), {}, {}};
  }
  /// A computed parameter: its elements in row-major order, canonical residues.
  /// @throws LayoutError (divide) when they are not shape.size() many
  [[nodiscard]] Param stored(Shape shape, std::vector<gf61::Element> elements) {
    if (static_cast<Index>(elements.size()) != shape.size())
      throw LayoutError(
          "a stored parameter needs all its elements",
          {{"divide", std::to_string(elements.size()) + " elements for " + shape.str()}});
    return {shape, row_key(poison_, params_++), {}, std::move(elements)};
  }
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) const {
    require_copy_fits(param.shape, dim, offset, full, start, length);
    if (dim == 0)
      overwrite(param, offset, 0, length, param.shape.cols(),
                full.pieces(start, length, 0, param.shape.cols()));
    else
      overwrite(param, 0, offset, param.shape.rows(), length,
                full.pieces(0, param.shape.rows(), start, length));
  }
  /// All elements of a parameter, [rows, cols] ([rows, 1] for a bias).
  [[nodiscard]] Tensor read(const Param& w) const {
    Tensor out(w.shape.rows(), w.shape.cols());
    const ParamReader reader(w, context_->seed);
    for (Index r = 0; r < out.tokens && out.cols > 0; ++r) {
      const gf61::Element* from = reader.block(r, 0, out.cols, out.row(r));
      if (from != out.row(r)) std::copy_n(from, out.cols, out.row(r));
    }
    return out;
  }

  /// Random activations [tokens, cols], the same on every rank and independent of all weights.
  [[nodiscard]] Tensor input(std::string_view name, Index tokens, Index cols) const {
    Tensor out(tokens, cols);
    const std::uint64_t key = tensor_key(context_->seed, hash_name("input: " + std::string(name)));
    for (Index t = 0; t < tokens; ++t)
      random_rows::fill_residues(row_key(key, t), 0, cols, out.row(t));
    return out;
  }

  [[nodiscard]] Tensor linear(const Tensor& x, const Param& w) {
    require(x.cols == w.shape.cols(), "linear", shape(x), w.shape);
    Tensor y;
    y.tokens = x.tokens;
    y.cols = w.shape.rows();
    const ParamReader reader(w, context_->seed);
    y.values = gf61::linear(gf61::PackedTokens(x.values, x.tokens, x.cols), y.cols,
                            [&](Index row, Index col, Index n, gf61::Element* buffer) {
                              return reader.block(row, col, n, buffer);
                            });
    counters_.macs += static_cast<std::uint64_t>(x.tokens * x.cols * y.cols);
    return y;
  }
  [[nodiscard]] Tensor add_bias(const Tensor& y, const Param& bias) const {
    require(bias.shape.cols() == 1 && bias.shape.rows() == y.cols, "add_bias", shape(y),
            bias.shape);
    const Tensor b = read(bias);
    Tensor out = y;
    for (Index t = 0; t < y.tokens; ++t)
      std::transform(y.row(t), y.row(t) + y.cols, b.values.data(), out.row(t), gf61::add);
    return out;
  }
  [[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b) const {
    require(shape(a) == shape(b), "mul", shape(a), shape(b));
    return zip(a, b, gf61::mul);
  }

  /// x sigma(x) with sigma(x) = 1 / (1 + E(-x)), E an oracle without the value 0: a program that
  /// spells out the sigmoid agrees with one that calls silu.
  /// @throws Undefined when some 1 + E(-x) is 0
  [[nodiscard]] Tensor silu(const Tensor& x) { return mul(x, sigmoid(x)); }
  /// @throws Undefined when some 1 + E(-x) is 0
  [[nodiscard]] Tensor sigmoid(const Tensor& x) {
    Tensor out = x;
    each(out, [&](gf61::Element v) { return gf61::add(1, oracle_.nonzero("exp", gf61::neg(v))); });
    if (std::find(out.values.begin(), out.values.end(), 0U) != out.values.end())
      throw Undefined("sigmoid");
    gf61::invert_all(out.values);
    return out;
  }
  /// Any other function of one value, known by its name alone.
  [[nodiscard]] Tensor apply(std::string_view op, const Tensor& x) {
    Tensor out = x;
    each(out, [&](gf61::Element v) { return oracle_.value(op, v); });
    return out;
  }

  [[nodiscard]] Tensor slice(const Tensor& x, int dim, Index start, Index length) const {
    if (start < 0 || length < 0 || start > shape(x).dim(dim) - length)
      throw LayoutError("cannot slice " + shape(x).str(),
                        {{"cover", "there are no entries [" + std::to_string(start) + ", " +
                                       std::to_string(start + length) + ") in dimension " +
                                       std::to_string(dim)}});
    Tensor out(dim == 0 ? length : x.tokens, dim == 0 ? x.cols : length);
    for (Index t = 0; t < out.tokens; ++t)
      std::copy_n(x.row(dim == 0 ? start + t : t) + (dim == 0 ? 0 : start), out.cols, out.row(t));
    return out;
  }
  [[nodiscard]] Tensor concat(std::span<const Tensor* const> parts, int dim) const {
    Tensor out;
    if (parts.empty()) return out;
    Shape all = shape(*parts[0]).with(dim, 0);
    for (const Tensor* part : parts) {
      require(shape(*part).dim(1 - dim) == all.dim(1 - dim), "concat", all, shape(*part));
      all = all.with(dim, all.dim(dim) + shape(*part).dim(dim));
    }
    out = Tensor(all.rows(), all.cols());
    Index begin = 0;
    for (const Tensor* part : parts) {
      for (Index t = 0; t < part->tokens; ++t)
        std::copy_n(part->row(t), part->cols, dim == 0 ? out.row(begin + t) : out.row(t) + begin);
      begin += shape(*part).dim(dim);
    }
    return out;
  }
  /// The maximum is that of the residues as integers: associative, commutative and idempotent, so
  /// that the maximum of local maxima is the maximum; it knows no law of shifts or scales.
  [[nodiscard]] Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
    Tensor out = parts.empty() ? Tensor() : *parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
      require(shape(out) == shape(*parts[i]), "reduce", shape(out), shape(*parts[i]));
      if (op == Reduction::sum) {
        out = zip(out, *parts[i], gf61::add);
      } else {
        out = zip(out, *parts[i], [](auto a, auto b) { return std::max(a, b); });
        counters_.comparisons += out.values.size();
      }
    }
    return out;
  }

 private:
  static void require(bool fits, std::string_view op, Shape a, Shape b) {
    if (!fits)
      throw LayoutError(std::string(op) + " cannot combine " + a.str() + " and " + b.str(),
                        {{"divide", "the shapes do not fit each other"}});
  }
  template <class F>
  [[nodiscard]] static Tensor zip(const Tensor& a, const Tensor& b, F f) {
    Tensor out(a.tokens, a.cols);
    std::transform(a.values.begin(), a.values.end(), b.values.begin(), out.values.begin(), f);
    return out;
  }
  template <class F>
  void each(Tensor& x, F f) {
    std::transform(x.values.begin(), x.values.end(), x.values.begin(), f);
    counters_.oracle_calls += x.values.size();
  }

  std::shared_ptr<const FieldContext> context_;
  Oracle oracle_;
  std::uint64_t poison_;
  Index params_ = 0;
  FieldCounters counters_;
};

using FieldBackend = BasicFieldBackend<>;

}  // namespace tpsim
