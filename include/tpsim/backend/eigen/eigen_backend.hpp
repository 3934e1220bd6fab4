// SPDX-License-Identifier: MIT
// The numeric backend: real numbers on the CPU, with the rounding of bf16 and f16 engines and a
// running bound on the error.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/eigen/load.hpp>
#include <tpsim/backend/eigen/product.hpp>

namespace tpsim {

struct EigenOptions {
  eigen::ValueRule values = {};  ///< numbers of tensors that come without any
  bool track_bounds = false;     ///< carry a bound on |computed - exact| along
};

/// `rule` is the type that weights and activations have. Weights and inputs are rounded to it (to
/// nearest even) when they are made.
///
/// EigenBackend<float>: f32, or bf16 and f16 as engines compute them: 2-byte weights, sums in f32,
/// activations rounded at the border of every operation (linear rounds, add_bias rounds again, so
/// do mul and silu) and at every hop of a reduction.
///
/// EigenBackend<double>: the reference for that rule. It starts from the same rounded weights and
/// inputs; its operations are plain f64 and round to nothing else.
///
/// Bounds (`track_bounds`): |value - exact| <= bound, where exact is real arithmetic on the
/// rounded weights and the given inputs; an input without a bound counts as exact. They are kept
/// in double and enlarged by 1 + 2^-40 in each operation for their own rounding, which is enough
/// up to 2 million columns. A value that is not finite has a bound that is not finite.
/// Source of the error model: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2-3.
template <class Real>
class EigenBackend {
  static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);

 public:
  using Tensor = eigen::Tensor<Real>;
  using Param = eigen::Param;
  static constexpr DType own_type = std::is_same_v<Real, float> ? DType::f32 : DType::f64;

  /// One backend object for each rank: `tp_rank` marks its unwritten memory.
  /// @throws LayoutError when the rule is not a float type that Real can hold
  explicit EigenBackend(int tp_rank = 0, DType rule = own_type, EigenOptions options = {})
      : tp_rank_(tp_rank), rule_(rule), options_(options) {
    const bool known = rule == DType::f32 || eigen::is_16bit(rule) || rule == own_type;
    if (!known || tp_rank < 0)
      throw LayoutError("the " + std::string(tpsim::name(own_type)) + " backend cannot be rank " +
                            std::to_string(tp_rank) + " with the rule " +
                            std::string(tpsim::name(rule)),
                        {}, "rules are f32, bf16 and f16, and f64 in double; ranks start at 0");
  }

  [[nodiscard]] DType rule() const { return rule_; }
  [[nodiscard]] const EigenOptions& options() const { return options_; }

  [[nodiscard]] Shape shape(const Tensor& x) const { return {x.value.rows(), x.value.cols()}; }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape; }
  [[nodiscard]] DType dtype(const Tensor& /*x*/) const {
    return std::is_same_v<Real, float> ? rule_ : DType::f64;
  }
  [[nodiscard]] DType dtype(const Param& w) const { return w.dtype; }

  [[nodiscard]] Param empty(std::string_view /*name*/, Shape shape) const {
    return eigen::poisoned(shape, rule_, tp_rank_);
  }
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) const {
    require_copy_fits(param.shape, dim, offset, full, start, length);
    const Shape from = full.shape();
    const eigen::Rectangle where = dim == 0
                                       ? eigen::Rectangle{offset, 0, start, length, 0, from.cols()}
                                       : eigen::Rectangle{0, offset, 0, from.rows(), start, length};
    eigen::load_rectangle(param, where, full, options_.values);
  }

  /// The input called `name`, generated: the same numbers on every rank and for float and double.
  [[nodiscard]] Tensor activation(std::string_view name, Shape shape) const {
    eigen::Matrix<float> x(shape.rows(), shape.cols());
    for (Index t = 0; t < x.rows(); ++t)
      eigen::RowGenerator::of_activation(options_.values, name, t)
          .fill(0, x.cols(), x.data() + t * x.cols());
    return input(x);
  }
  /// The first shape.rows() rows of stored values, rounded to the rule.
  [[nodiscard]] Tensor activation(const Values& values, Shape shape) const {
    eigen::Matrix<Real> x(shape.rows(), shape.cols());
    for (Index t = 0; t < x.rows(); ++t)
      values.read(t, 0, {x.data() + t * x.cols(), static_cast<std::size_t>(x.cols())});
    return input(x);
  }
  /// Any matrix as an input: rounded to the rule, exact by definition (a stage that is fed the
  /// reference's values starts here).
  template <class T>
  [[nodiscard]] Tensor input(const eigen::Matrix<T>& x) const {
    Tensor out;
    if (rule_ == DType::f64) {
      out.value = x.template cast<Real>();
    } else {
      eigen::Matrix<float> single = x.template cast<float>();
      eigen::round_to(rule_, single.data(), single.size());
      out.value = single.template cast<Real>();
    }
    return out;
  }

  /// Error of an output: for each block of n <= 256 columns (n + 2) u (|x| |w|^T), which holds for
  /// any order inside the block and with or without fused operations; u |sum| for each added
  /// block; bound_x |w|^T; 2^-149 for each product that may underflow; the rounding to the rule.
  [[nodiscard]] Tensor linear(const Tensor& x, const Param& w) const {
    const Index tokens = x.value.rows(), in = x.value.cols();
    if (w.shape.cols() != in || w.shape.rank() != 2)
      throw LayoutError(
          "linear cannot multiply " + shape(x).str() + " by a weight " + w.shape.str(),
          {{"state", "x has " + std::to_string(in) + " columns, the weight " +
                         std::to_string(w.shape.cols())}});
    Tensor y;
    y.value.resize(tokens, w.shape.rows());
    const eigen::PackedTokens<Real> packed(tokens, in,
                                           [&](Index t, Index k) { return x.value(t, k); });
    const auto rows = weight_rows(w);
    if (!options_.track_bounds) {
      eigen::tiled_product<Real>(packed, nullptr, in, rows, 0, 0, y.value, nullptr);
    } else {
      const eigen::Rounding own = eigen::rounding_of(own_type);
      const double nu = static_cast<double>(std::min(in, eigen::kBlock) + 2) * own.unit;
      // |x| + bound_x / (n u) carries both terms through one product; rounded up to Real
      const eigen::PackedTokens<Real> spread(tokens, in, [&](Index t, Index k) {
        const double c = std::abs(static_cast<double>(x.value(t, k))) + x.bound_at(t, k) / nu;
        return static_cast<Real>(c) * (1 + 4 * static_cast<Real>(own.unit)) +
               std::numeric_limits<Real>::denorm_min();
      });
      y.bound.resize(tokens, w.shape.rows());
      // 1 + 2 nu: the product of absolute values is itself computed in Real
      eigen::tiled_product<Real>(packed, &spread, in, rows, own.unit, nu * (1 + 2 * nu), y.value,
                                 &y.bound);
      y.bound.array() += static_cast<double>(in) * 2 * own.eta;
    }
    if (!is_rounded()) return finish(std::move(y), {});
    return finish(std::move(y), eigen::rounding_of(rule_));
  }

  [[nodiscard]] Tensor add_bias(const Tensor& y, const Param& bias) const {
    if (bias.shape.rank() != 1 || bias.shape.rows() != y.value.cols())
      throw LayoutError("add_bias cannot add " + bias.shape.str() + " to " + shape(y).str(),
                        {{"state", "a bias needs one entry for each column"}});
    Tensor out = y;
    ensure_bound(out);
    for (Index c = 0; c < y.value.cols(); ++c)
      out.value.col(c).array() += static_cast<Real>(bias.at(c, 0));
    return finish(std::move(out), operation());
  }

  /// Error: |a| e_b + |b| e_a + e_a e_b, and the rounding of the result.
  [[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b) const {
    require_same_shape("mul", a, b);
    Tensor out{a.value.cwiseProduct(b.value), {}};
    ensure_bound(out);
    if (options_.track_bounds)
      for (Index t = 0; t < out.value.rows(); ++t)
        for (Index c = 0; c < out.value.cols(); ++c) {
          const double ea = a.bound_at(t, c), eb = b.bound_at(t, c);
          out.bound(t, c) = std::abs(static_cast<double>(a.value(t, c))) * eb +
                            std::abs(static_cast<double>(b.value(t, c))) * ea + ea * eb;
        }
    return finish(std::move(out), operation());
  }

  /// silu(a) = a / (1 + exp(-a)), evaluated in double and rounded once to Real.
  /// Error: 1.1 e_a, since |silu'| < 1.0999 everywhere; 16 units of double (2^-49) for exp (under
  /// one ulp in glibc), sum, quotient and product; min(|a|, 1100) 2^-1074 where exp(-|a|) is
  /// subnormal; and the rounding of the result.
  [[nodiscard]] Tensor silu(const Tensor& a) const {
    Tensor out{eigen::Matrix<Real>(a.value.rows(), a.value.cols()), {}};
    ensure_bound(out);
    eigen::parallel_for(a.value.rows(), a.value.size() > 1 << 12, [&](Index t) {
      for (Index c = 0; c < a.value.cols(); ++c) {
        const double v = static_cast<double>(a.value(t, c)), e = std::exp(-std::abs(v));
        out.value(t, c) = static_cast<Real>(v * ((v < 0 ? e : 1.0) / (1.0 + e)));
        if (options_.track_bounds)
          out.bound(t, c) = 1.1 * a.bound_at(t, c) + std::min(std::abs(v), 1100.0) * 0x1p-1074;
      }
    });
    eigen::Rounding error = operation();
    error.unit += 0x1p-49;
    return finish(std::move(out), error);
  }

  [[nodiscard]] Tensor slice(const Tensor& x, int dim, Index start, Index length) const {
    const Shape s = shape(x);
    if (start < 0 || length < 0 || start > s.dim(dim) - length)
      throw LayoutError(
          "slice reads outside " + s.str(),
          {{"cover", "entries [" + std::to_string(start) + ", " + std::to_string(start + length) +
                         ") of dimension " + std::to_string(dim)}});
    const auto part = [&](const auto& m) {
      return dim == 0 ? m.middleRows(start, length).eval() : m.middleCols(start, length).eval();
    };
    Tensor out{part(x.value), {}};
    if (x.has_bound()) out.bound = part(x.bound);
    return out;
  }

  [[nodiscard]] Tensor concat(std::span<const Tensor* const> parts, int dim) const {
    Index extent = 0;
    bool bounds = false;
    for (const Tensor* p : parts) {
      if (shape(*p).dim(1 - dim) != shape(*parts[0]).dim(1 - dim))
        throw LayoutError("concat cannot join " + shape(*parts[0]).str() + " and " +
                              shape(*p).str() + " along dimension " + std::to_string(dim),
                          {{"state", "the other dimension must be equal"}});
      extent += shape(*p).dim(dim);
      bounds = bounds || p->has_bound();
    }
    Tensor out;
    if (parts.empty()) return out;
    const Shape s = shape(*parts[0]).with(dim, extent);
    out.value.resize(s.rows(), s.cols());
    if (bounds) out.bound.setZero(s.rows(), s.cols());
    Index at = 0;
    for (const Tensor* p : parts) {
      const Index n = shape(*p).dim(dim);
      const auto put = [&](auto& to, const auto& from) {
        if (dim == 0)
          to.middleRows(at, n) = from;
        else
          to.middleCols(at, n) = from;
      };
      put(out.value, p->value);
      if (p->has_bound()) put(out.bound, p->bound);
      at += n;
    }
    return out;
  }

  /// sum: a_1 = l_1, a_j = rnd(a_{j-1} + l_j) in the order given, rounded to the rule at each hop.
  /// Error: the parts' bounds, and one rounding of each a_j, j > 1. max: the largest part's bound.
  [[nodiscard]] Tensor reduce(Reduction op, std::span<const Tensor* const> parts) const {
    if (parts.empty()) return {};
    Tensor a = *parts[0];
    ensure_bound(a);
    for (const Tensor* part : parts.subspan(1)) {
      require_same_shape("reduce", a, *part);
      if (op == Reduction::max) {
        a.value = a.value.binaryExpr(part->value, [](Real x, Real y) {
          return y > x || std::isnan(y) ? y : x;  // a NaN wins, from either side
        });
        if (options_.track_bounds && part->has_bound()) a.bound = a.bound.cwiseMax(part->bound);
        continue;
      }
      a.value += part->value;
      if (options_.track_bounds && part->has_bound()) a.bound += part->bound;
      a = finish(std::move(a), operation());
    }
    return a;
  }

  /// Is every sum of |x| |w|^T within the exact integers of the rule, so that integer data gives
  /// the same bits in any order? (Checked with the largest |w|; does not look for fractions.)
  [[nodiscard]] bool sums_are_exact(const Tensor& x, const Param& w) const {
    double largest = 0;
    for (Index r = 0; r < w.shape.rows(); ++r)
      for (Index c = 0; c < w.shape.cols(); ++c) largest = std::max(largest, std::abs(w.at(r, c)));
    const double sum = x.value.template cast<double>().cwiseAbs().rowwise().sum().maxCoeff();
    return sum * largest <= static_cast<double>(eigen::exact_integers(dtype(x)));
  }

 private:
  /// Are activations rounded further than Real?
  [[nodiscard]] bool is_rounded() const {
    return std::is_same_v<Real, float> && eigen::is_16bit(rule_);
  }
  /// One operation in Real whose result is then stored by the rule.
  [[nodiscard]] eigen::Rounding operation() const {
    return is_rounded() ? eigen::rounded_twice(rule_) : eigen::rounding_of(own_type);
  }
  void ensure_bound(Tensor& x) const {
    if (!options_.track_bounds)
      x.bound.resize(0, 0);
    else if (!x.has_bound())
      x.bound.setZero(x.value.rows(), x.value.cols());
  }
  /// Rounds to the rule and closes the bound.
  [[nodiscard]] Tensor finish(Tensor y, eigen::Rounding error) const {
    if constexpr (std::is_same_v<Real, float>)
      eigen::round_to(rule_, y.value.data(), y.value.size());
    if (options_.track_bounds)
      y.bound = (y.bound.array() + error.unit * y.value.template cast<double>().array().abs() +
                 error.eta) *
                (1 + 0x1p-40);
    return y;
  }
  void require_same_shape(const char* what, const Tensor& a, const Tensor& b) const {
    if (shape(a) != shape(b))
      throw LayoutError(std::string(what) + " needs equal shapes",
                        {{"state", shape(a).str() + " and " + shape(b).str()}});
  }
  [[nodiscard]] eigen::WeightRows<Real> weight_rows(const Param& w) const {
    return std::visit(
        [&w](const auto& m) -> eigen::WeightRows<Real> {
          using T = typename std::decay_t<decltype(m)>::Scalar;
          const T* data = m.data();
          const Index stride = m.cols();
          return [data, stride, t = w.dtype](Index row, Index k, Index n, Real* scratch) {
            const T* from = data + row * stride + k;
            if constexpr (std::is_same_v<T, Real>) {
              return from;
            } else if constexpr (std::is_same_v<T, std::uint16_t>) {
              eigen::widen(t, from, n, scratch);
              return static_cast<const Real*>(scratch);
            } else {
              for (Index i = 0; i < n; ++i) scratch[i] = static_cast<Real>(from[i]);
              return static_cast<const Real*>(scratch);
            }
          };
        },
        w.storage);
  }

  int tp_rank_;
  DType rule_;
  EigenOptions options_;
};

static_assert(Backend<EigenBackend<float>> && Backend<EigenBackend<double>>);

}  // namespace tpsim
