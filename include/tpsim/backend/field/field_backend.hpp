// SPDX-License-Identifier: MIT
// The exact backend: the operations of a layer over GF(2^61-1), nonlinear functions as oracles.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/field/argmax.hpp>
#include <tpsim/backend/field/attention.hpp>
#include <tpsim/backend/field/functions.hpp>
#include <tpsim/backend/field/kernel.hpp>
#include <tpsim/backend/field/oracle.hpp>
#include <tpsim/backend/field/param.hpp>
#include <tpsim/backend/field/rotary.hpp>
#include <tpsim/backend/field/statistics.hpp>
#include <tpsim/backend/field/tensor.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim {

/// One rank's backend. Two values are equal or not: there is no tolerance.
/// Weights are not stored: an element is a random function of (seed, logical tensor, canonical
/// row, column), made while it is used. `Oracle` is a parameter only so that tests can divide by
/// zero; what weaker oracles miss is a Weakening's to show.
template <class Oracle = SipOracle>
class BasicFieldBackend {
 public:
  using Tensor = FieldTensor;
  using Param = FieldParam;

  BasicFieldBackend(std::shared_ptr<const FieldContext> context, int tp_rank)
      : BasicFieldBackend(context, tp_rank, oracle_of(*context, tp_rank)) {}
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
      overwrite(param.pieces, offset, 0, length, param.shape.cols(),
                full.pieces(start, length, 0, param.shape.cols()));
    else
      overwrite(param.pieces, 0, offset, param.shape.rows(), length,
                full.pieces(0, param.shape.rows(), start, length));
  }
  void fill_zeros(Param& param, Index row, Index rows) const {
    require_rows_fit(param.shape, row, rows);
    const Index cols = param.shape.cols();
    overwrite(param.pieces, row, 0, rows, cols, {{0, 0, rows, cols, zero_rows()}});
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
  [[nodiscard]] Tensor lookup(const Param& table, const std::vector<Index>& rows) const {
    Tensor out(static_cast<Index>(rows.size()), table.shape.cols());
    const ParamReader reader(table, context_->seed);
    for (Index t = 0; t < out.tokens; ++t) {
      const Index row = clamped_row(rows[static_cast<std::size_t>(t)], table.shape.rows());
      const gf61::Element* from = reader.block(row, 0, out.cols, out.row(t));
      if (from != out.row(t)) std::copy_n(from, out.cols, out.row(t));
    }
    return out;
  }
  [[nodiscard]] Tensor keep_tokens(Tensor x, const std::vector<bool>& keep) const {
    require_keep_fits(x.tokens, keep);
    for (Index t = 0; t < x.tokens; ++t)
      if (!keep[static_cast<std::size_t>(t)]) std::fill_n(x.row(t), x.cols, 0);
    return x;
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
  [[nodiscard]] Tensor add(const Tensor& a, const Tensor& b) const {
    require(shape(a) == shape(b), "add", shape(a), shape(b));
    return zip(a, b, gf61::add);
  }
  /// Nothing is rounded in the field.
  [[nodiscard]] Tensor add_unrounded(const Tensor& a, const Tensor& b) const { return add(a, b); }
  [[nodiscard]] Tensor rounded(const Tensor& x) const { return x; }
  /// Every element `factor` times.
  [[nodiscard]] Tensor scale(const Tensor& x, Rational factor) const {
    return times(
        x, gf61::mul(gf61::residue(factor.num()), gf61::inverse(gf61::residue(factor.den()))));
  }

  /// x sigma(x) with sigma(x) = 1 / (1 + E(-x)), E an oracle without the value 0: a program that
  /// spells out the sigmoid agrees with one that calls silu.
  /// @throws Undefined when some 1 + E(-x) is 0
  [[nodiscard]] Tensor silu(const Tensor& x) {
    if (std::optional<Tensor> y = weakened(x)) return *std::move(y);
    return mul(x, sigmoid(x));
  }
  /// @throws Undefined when some 1 + E(-x) is 0
  [[nodiscard]] Tensor sigmoid(const Tensor& x) {
    Tensor out = x;
    each(out, [&](gf61::Element v) { return gf61::add(1, oracle_.nonzero("exp", gf61::neg(v))); });
    if (std::find(out.values.begin(), out.values.end(), 0U) != out.values.end())
      throw Undefined("sigmoid");
    gf61::invert_all(out.values);
    return out;
  }
  /// x / sqrt(n), for the integer n that the code uses (attention divides by the square root of
  /// head_dim): sqrt is known by its argument alone, so another n is another value.
  [[nodiscard]] Tensor divide_by_sqrt(const Tensor& x, Index n) {
    ++counters_.oracle_calls;
    return times(x, functions().rsqrt_of(n));
  }
  /// x Phi(x), Phi an oracle: 0 stays 0.
  [[nodiscard]] Tensor gelu(const Tensor& x) {
    if (std::optional<Tensor> y = weakened(x)) return *std::move(y);
    Tensor phi = x;
    each(phi, [f = functions()](gf61::Element v) { return f.phi(v); });
    return mul(x, phi);
  }
  /// x / 2 (1 + tanh(u)) = x sigma(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), the sigma of
  /// silu. @throws Undefined when some 1 + E(-2 u) is 0
  [[nodiscard]] Tensor gelu_tanh(const Tensor& x) {
    if (std::optional<Tensor> y = weakened(x)) return *std::move(y);
    const gf61::Element root = functions().constant(1.5957691216057308);  // sqrt(8 / pi)
    ++counters_.oracle_calls;
    const Tensor cubes = scale(mul(x, mul(x, x)), Rational(44715, 1000000));
    return mul(x, sigmoid(times(add(x, cubes), root)));
  }
  /// Any other function of one value, known by its name alone.
  [[nodiscard]] Tensor apply(std::string_view op, const Tensor& x) {
    Tensor out = x;
    each(out, [&](gf61::Element v) { return oracle_.value(op, v); });
    return out;
  }

  [[nodiscard]] Tensor column_sums(const Tensor& x, Index group) const {
    return detail::field_statistics(x, group, detail::sum);
  }
  [[nodiscard]] Tensor square_sums(const Tensor& x, Index group) const {
    return detail::field_statistics(x, group, detail::sum_of_squares);
  }
  /// @throws LayoutError (divide) when count is not positive
  [[nodiscard]] Tensor centered(const Tensor& x, const Tensor& sums, Index count) const {
    return detail::with_statistics(x, times(sums, detail::inverse_count(count)), gf61::sub);
  }
  /// The root is that of divide_by_sqrt(). @throws LayoutError (divide) when count is not positive
  [[nodiscard]] Tensor rms_normalized(const Tensor& x, const Tensor& square_sums, Index count,
                                      double eps) {
    const auto f = functions();
    Tensor roots = times(square_sums, detail::inverse_count(count));
    each(roots, [&, e = f.constant(eps)](gf61::Element v) { return f.rsqrt(gf61::add(v, e)); });
    ++counters_.oracle_calls;
    return detail::with_statistics(x, roots, gf61::mul);
  }
  [[nodiscard]] Tensor mul_columns(const Tensor& x, const Param& w) const {
    require_columns_fit(shape(x), w.shape);
    return detail::times_columns(x, read(w));
  }
  [[nodiscard]] Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
                            const RopeSpec& spec) const {
    require_rope_fits(shape(x), positions, head_dim, spec);
    return detail::turned(x, positions, head_dim, spec, context_->seed);
  }
  /// @throws Undefined when the sum of some softmax is 0
  [[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionSpec& spec, const Param* sinks) {
    std::optional<Tensor> read_sinks;
    if (sinks != nullptr) read_sinks = read(*sinks);
    const auto each_sink = read_sinks
                               ? std::optional(std::span<const gf61::Element>(read_sinks->values))
                               : std::nullopt;
    require_attention_fits(
        spec, shape(q), shape(k), shape(v),
        read_sinks ? std::optional(static_cast<Index>(each_sink->size())) : std::nullopt);
    detail::FieldAttention<Oracle> attend(spec, functions(), q, k, v, each_sink);
    Tensor out = attend();
    counters_.oracle_calls += static_cast<std::uint64_t>(attend.oracle_calls());
    counters_.macs += static_cast<std::uint64_t>(attend.macs());
    return out;
  }

  /// In the order of (v - 1) mod p: one order of many, which every rank shares.
  [[nodiscard]] Tensor largest(const Tensor& x, Index first_id) {
    counters_.comparisons += x.values.size();
    return detail::largest(x, first_id);
  }
  [[nodiscard]] Tensor best_of(const Tensor& pairs) {
    counters_.comparisons += pairs.values.size() / 2;
    return detail::best_of(pairs);
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
  /// For another process: canonical residues; what an object has counted stays with it.
  [[nodiscard]] Bytes pack(const Tensor& x) const {
    ByteWriter w;
    w.put(x.tokens);
    w.put(x.cols);
    w.put_all(std::span<const gf61::Element>(x.values));
    return std::move(w.bytes);
  }
  [[nodiscard]] Tensor unpack(std::span<const std::byte> bytes) const {
    ByteReader r(bytes);
    Tensor x;
    x.tokens = r.get<Index>(), x.cols = r.get<Index>();
    x.values.resize(static_cast<std::size_t>(x.tokens * x.cols));
    r.get_all(std::span<gf61::Element>(x.values));
    return x;
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
  static Oracle oracle_of(const FieldContext& context, int tp_rank) {
    const bool keyed = context.weakening == Weakening::rank_keyed_oracle;
    return Oracle(context.seed + static_cast<std::uint64_t>(keyed ? tp_rank : 0));
  }
  /// What is left of a nonlinear function when it is weakened; nothing when it is not.
  [[nodiscard]] std::optional<Tensor> weakened(const Tensor& x) const {
    const auto f = functions();
    if (!f.weak()) return std::nullopt;
    Tensor out = x;
    for (gf61::Element& v : out.values) v = f.weakened(v);
    return out;
  }
  [[nodiscard]] FieldFunctions<Oracle> functions() const { return {oracle_, context_->weakening}; }
  [[nodiscard]] static Tensor times(Tensor x, gf61::Element factor) {
    for (gf61::Element& v : x.values) v = gf61::mul(v, factor);
    return x;
  }
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
static_assert(DecoderBackend<FieldBackend> && BackendHasArgmax<FieldBackend>);

}  // namespace tpsim
