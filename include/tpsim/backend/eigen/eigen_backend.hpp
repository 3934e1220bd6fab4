// SPDX-License-Identifier: MIT
// The numeric backend: real numbers on the CPU, with the rounding of bf16 and f16 engines and a
// running bound on the error.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/eigen/activations.hpp>
#include <tpsim/backend/eigen/argmax.hpp>
#include <tpsim/backend/eigen/attention.hpp>
#include <tpsim/backend/eigen/linear.hpp>
#include <tpsim/backend/eigen/pointwise.hpp>
#include <tpsim/backend/eigen/reduce.hpp>
#include <tpsim/backend/eigen/rotary.hpp>
#include <tpsim/backend/eigen/statistics.hpp>
#include <tpsim/backend/eigen/weight_rows.hpp>
#include <tpsim/backend/eigen/wire.hpp>
#include <tpsim/core/rational.hpp>
#include <tpsim/core/weakening.hpp>

namespace tpsim {

struct EigenOptions {
  eigen::ValueRule values = {};           ///< numbers of tensors that come without any
  bool track_bounds = false;              ///< carry a bound on |computed - exact| along
  ReduceOrder order = ReduceOrder::rank;  ///< of sums over ranks
  Weakening weakening = Weakening::none;  ///< for tests of the verifier alone
  bool tf32 = false;                      ///< as CudaOptions; the CPU's products never use it
};

/// `rule` is the type that weights and activations have. Weights and inputs are rounded to it (to
/// nearest even) when they are made.
///
/// EigenBackend<float>: f32, or bf16 and f16 as engines compute them: 2-byte weights, sums in f32,
/// activations rounded at the border of every operation (linear rounds, add_bias rounds again, so
/// do mul and silu) and in reductions as `order` says. Statistics and add_unrounded() are wide: f32
/// until an operation other than add, scale, reduce, slice, concat or keep_tokens takes them.
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
  static constexpr DType own_type = eigen::Precision<Real>::own_type;

  /// One backend object for each rank: `tp_rank` marks its unwritten memory.
  /// @throws LayoutError when the rule is not a float type that Real can hold
  explicit EigenBackend(int tp_rank = 0, DType rule = own_type, EigenOptions options = {})
      : tp_rank_(tp_rank), options_(options), precision_{rule, options.track_bounds} {
    const bool known = rule == DType::f32 || eigen::is_16bit(rule) || rule == own_type;
    if (!known || tp_rank < 0)
      throw LayoutError("the " + std::string(tpsim::name(own_type)) + " backend cannot be rank " +
                            std::to_string(tp_rank) + " with the rule " +
                            std::string(tpsim::name(rule)),
                        {}, "rules are f32, bf16 and f16, and f64 in double; ranks start at 0");
  }

  [[nodiscard]] DType rule() const { return precision_.rule; }
  [[nodiscard]] const EigenOptions& options() const { return options_; }

  [[nodiscard]] Shape shape(const Tensor& x) const { return eigen::shape_of(x); }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape; }
  [[nodiscard]] DType dtype(const Tensor& x) const { return precision_.dtype(x); }
  [[nodiscard]] DType dtype(const Param& w) const { return w.dtype; }

  [[nodiscard]] Param empty(std::string_view /*name*/, Shape shape) const {
    eigen::Param param = eigen::poisoned(shape, precision_.rule, tp_rank_);
    if (options_.weakening == Weakening::zeros_for_poison) param.poison = 0;
    return param;
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

  void fill_zeros(Param& param, Index row, Index rows) const {
    require_rows_fit(param.shape, row, rows);
    eigen::zero_fill(param, row, rows);
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
    if (precision_.rule == DType::f64) {
      out.value = x.template cast<Real>();
    } else {
      eigen::Matrix<float> single = x.template cast<float>();
      eigen::round_to(precision_.rule, single.data(), single.size());
      out.value = single.template cast<Real>();
    }
    return out;
  }

  /// x w^T: eigen/linear.hpp has the bound.
  [[nodiscard]] Tensor linear(const Tensor& x, const Param& w) const {
    return stage_input_ ? eigen::linear(precision_, stage_input_(linear_calls_++, x), w)
                        : eigen::linear(precision_, x, w);
  }
  /// From now on `linear` multiplies what `f` makes of its input, given which call it is: how a
  /// stage is fed the reference's values, so that bounds need not pass through the stages before.
  void set_stage_input(std::function<Tensor(std::size_t call, const Tensor& x)> f) {
    stage_input_ = std::move(f);
    linear_calls_ = 0;
  }

  /// Rows as the table has them: exact.
  [[nodiscard]] Tensor lookup(const Param& table, const std::vector<Index>& rows) const {
    const Index cols = table.shape.cols();
    Tensor out{eigen::Matrix<Real>(static_cast<Index>(rows.size()), cols), {}};
    const auto read = eigen::weight_rows<Real>(table);
    std::array<Real, static_cast<std::size_t>(eigen::kBlock)> scratch;
    for (Index t = 0; t < out.value.rows(); ++t) {
      const Index row = clamped_row(rows[static_cast<std::size_t>(t)], table.shape.rows());
      for (Index k = 0; k < cols; k += eigen::kBlock) {
        const Index n = std::min(eigen::kBlock, cols - k);
        std::copy_n(read(row, k, n, scratch.data()), n, out.value.data() + t * cols + k);
      }
    }
    return out;
  }
  [[nodiscard]] Tensor keep_tokens(Tensor x, const std::vector<bool>& keep) const {
    require_keep_fits(x.value.rows(), keep);
    for (Index t = 0; t < x.value.rows(); ++t) {
      if (keep[static_cast<std::size_t>(t)]) continue;
      x.value.row(t).setZero();
      if (x.has_bound()) x.bound.row(t).setZero();
    }
    return x;
  }

  // Element by element: eigen/pointwise.hpp and eigen/activations.hpp have the bounds.
  [[nodiscard]] Tensor add_bias(const Tensor& y, const Param& bias) const {
    return eigen::add_bias(precision_, y, bias);
  }
  [[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b) const {
    return eigen::mul(precision_, a, b);
  }
  [[nodiscard]] Tensor mul_columns(const Tensor& x, const Param& w) const {
    return eigen::mul_columns(precision_, x, w);
  }
  /// Rounded to the rule, except for a sum of two wide tensors.
  [[nodiscard]] Tensor add(const Tensor& a, const Tensor& b) const {
    return eigen::add(precision_, a, b, a.wide && b.wide);
  }
  [[nodiscard]] Tensor add_unrounded(const Tensor& a, const Tensor& b) const {
    return eigen::add(precision_, a, b, true);
  }
  [[nodiscard]] Tensor rounded(Tensor x) const { return eigen::rounded(precision_, std::move(x)); }
  [[nodiscard]] Tensor scale(const Tensor& x, Rational factor) const {
    return eigen::times(precision_, x,
                        static_cast<double>(factor.num()) / static_cast<double>(factor.den()));
  }
  [[nodiscard]] Tensor divide_by_sqrt(const Tensor& x, Index n) const {
    return eigen::times(precision_, x, 1 / std::sqrt(static_cast<double>(n)));
  }
  [[nodiscard]] Tensor silu(const Tensor& a) const { return eigen::silu(precision_, a); }
  [[nodiscard]] Tensor gelu(const Tensor& a) const { return eigen::gelu(precision_, a); }
  [[nodiscard]] Tensor gelu_tanh(const Tensor& a) const { return eigen::gelu_tanh(precision_, a); }

  // Row by row: eigen/statistics.hpp has the bounds. Sums and centered rows are wide.
  [[nodiscard]] Tensor column_sums(const Tensor& x, Index group) const {
    return eigen::column_sums(precision_, x, group);
  }
  [[nodiscard]] Tensor square_sums(const Tensor& x, Index group) const {
    return eigen::square_sums(precision_, x, group);
  }
  [[nodiscard]] Tensor centered(const Tensor& x, const Tensor& sums, Index count) const {
    return eigen::centered(precision_, x, sums, count);
  }
  [[nodiscard]] Tensor rms_normalized(const Tensor& x, const Tensor& square_sums, Index count,
                                      double eps) const {
    return eigen::rms_normalized(precision_, x, square_sums, count, eps);
  }

  // Head by head: eigen/rotary.hpp and eigen/attention.hpp have the bounds.
  [[nodiscard]] Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
                            const RopeSpec& spec) const {
    return eigen::rope(precision_, x, positions, head_dim, spec);
  }
  [[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionSpec& spec, const Param* sinks) const {
    return eigen::attention(precision_, q, k, v, spec, sinks);
  }

  // Choices: eigen/argmax.hpp has the bounds. Values and ids are wide.
  [[nodiscard]] Tensor largest(const Tensor& x, Index first_id) const {
    return eigen::largest(precision_, x, first_id);
  }
  [[nodiscard]] Tensor best_of(const Tensor& pairs) const {
    return eigen::best_of(precision_, pairs);
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
    Tensor out{part(x.value), {}, x.wide};
    if (x.has_bound()) out.bound = part(x.bound);
    return out;
  }

  [[nodiscard]] Tensor concat(std::span<const Tensor* const> given, int dim) const {
    const eigen::OneWidth<Real> same(precision_, given);
    const auto parts = same.parts();
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
    out.wide = eigen::all_wide<Real>(parts);
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

  /// The sum in the order and with the roundings of options().order (eigen/reduce.hpp has the
  /// bound of each), or the largest.
  [[nodiscard]] Tensor reduce(Reduction op, std::span<const Tensor* const> given) const {
    const eigen::OneWidth<Real> same(precision_, given);
    const auto parts = same.parts();
    if (parts.empty()) return {};
    for (const Tensor* part : parts) eigen::require_same_shape("reduce", *parts[0], *part);
    if (op == Reduction::max) return eigen::reduce_max<Real>(parts, options_.track_bounds);
    return eigen::reduce_sum<Real>(parts, precision_.rule, own_type, options_.order,
                                   options_.track_bounds,
                                   options_.weakening != Weakening::bound_without_hops);
  }

  /// For another process (eigen/wire.hpp): values, bounds and width.
  [[nodiscard]] Bytes pack(const Tensor& x) const { return eigen::pack(x); }
  [[nodiscard]] Tensor unpack(std::span<const std::byte> bytes) const {
    return eigen::unpack<Real>(bytes);
  }
  [[nodiscard]] TensorOps::Summands summands(const Tensor& x) const {
    return eigen::summands(precision_, x);
  }
  [[nodiscard]] Tensor from_sums(const Tensor& like, const TensorOps::Summands& sums,
                                 int ranks) const {
    return eigen::from_sums(precision_, like, sums, ranks);
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
  int tp_rank_;
  EigenOptions options_;
  eigen::Precision<Real> precision_;
  std::function<Tensor(std::size_t, const Tensor&)> stage_input_;
  mutable std::size_t linear_calls_ = 0;
};

static_assert(DecoderBackend<EigenBackend<float>> && DecoderBackend<EigenBackend<double>>);
static_assert(BackendHasArgmax<EigenBackend<float>> && BackendHasArgmax<EigenBackend<double>>);

}  // namespace tpsim
