// SPDX-License-Identifier: MIT
// The backend whose tensors are on a CUDA device.
#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/argmax.hpp>
#include <tpsim/backend/cuda/attention.hpp>
#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/backend/cuda/load.hpp>
#include <tpsim/backend/cuda/tensor.hpp>
#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/eigen/reduce_order.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim {

struct CudaOptions {
  eigen::ValueRule values = {};           ///< numbers of tensors that come without any
  ReduceOrder order = ReduceOrder::rank;  ///< of sums over ranks
  bool tf32 = false;                      ///< f32 products may use TF32
};

/// f32, or bf16 and f16 as engines compute them: the rounding rules are EigenBackend<float>'s. In
/// 2-byte types weights and activations are 2-byte words; what is wide there is f32 here. Products
/// are cuBLASLt's, in f32; all other operations compute as EigenBackend does, with the device's
/// exp and erfc (bodies/*.hpp).
/// Virtual ranks are several backends on copies of one Device: one stream, so that what one rank
/// has queued is there for the next, and collectives are kernels in rank order.
/// Errors: LayoutError for shapes that do not fit, cuda::Error for the device.
class CudaBackend {
 public:
  using Tensor = DeviceTensor;
  using Param = DeviceParam;

  /// One backend object for each rank: `tp_rank` marks its unwritten memory.
  /// @throws LayoutError for a rule that the device does not have
  explicit CudaBackend(cuda::Device device, int tp_rank = 0, DType rule = DType::f32,
                       CudaOptions options = {})
      : device_(std::move(device)), tp_rank_(tp_rank), rule_(rule), options_(options) {
    if ((rule != DType::f32 && !eigen::is_16bit(rule)) || tp_rank < 0)
      throw LayoutError("the CUDA backend cannot be rank " + std::to_string(tp_rank) +
                            " with the rule " + std::string(tpsim::name(rule)),
                        {}, "rules are f32, bf16 and f16; ranks start at 0");
  }

  [[nodiscard]] cuda::Device& device() { return device_; }
  [[nodiscard]] DType rule() const { return rule_; }
  [[nodiscard]] const CudaOptions& options() const { return options_; }
  [[nodiscard]] Shape shape(const Tensor& x) const { return x.shape(); }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape(); }
  [[nodiscard]] DType dtype(const Tensor& x) const { return dtype_of(x.type()); }
  [[nodiscard]] DType dtype(const Param& w) const { return dtype_of(w.type()); }

  /// The poison of EigenBackend: the same bits for the same rank.
  Param empty(std::string_view /*name*/, Shape shape) {
    Param param(device_, shape, type());
    device_.fill(param.view(), static_cast<std::uint32_t>(eigen::poison_bits(rule_, tp_rank_)));
    return param;
  }
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) {
    require_copy_fits(param.shape(), dim, offset, full, start, length);
    detail::load_rows(device_, param.entries(dim, offset, length), full, dim == 0 ? start : 0,
                      dim == 0 ? 0 : start, options_.values);
  }
  void fill_zeros(Param& param, Index row, Index rows) {
    require_rows_fit(param.shape(), row, rows);
    device_.fill(param.entries(0, row, rows), 0);
  }

  /// x w^T. Of a wide x in f32, with w as it is.
  Tensor linear(const Tensor& x, const Param& w) {
    if (w.shape().cols() != x.shape().cols() || w.shape().rank() != 2)
      throw LayoutError(
          "linear cannot multiply " + x.shape().str() + " by a weight " + w.shape().str(),
          {{"state", "x has " + std::to_string(x.shape().cols()) + " columns, the weight " +
                         std::to_string(w.shape().cols())}});
    cuda::Product p;
    p.a = x.view(), p.b = w.view(), p.tf32 = options_.tf32;
    Tensor y = make(Shape(x.shape().rows(), w.shape().rows()), x.type());
    p.y = y.view();
    if (x.type() == w.type()) {
      device_.product(p);
      return y;
    }
    const Tensor wide = converted(w, x.type());
    p.b = wide.view();
    device_.product(p);
    return rounded(y);
  }
  Tensor lookup(const Param& table, const std::vector<Index>& rows) {
    std::vector<Index> inside;
    for (const Index row : rows) inside.push_back(clamped_row(row, table.shape().rows()));
    Tensor out = make(Shape(static_cast<Index>(rows.size()), table.shape().cols()), table.type());
    const auto list = array(inside);
    device_.lookup(table.view(), static_cast<const Index*>(list.get()), out.view());
    return out;
  }
  Tensor keep_tokens(const Tensor& x, const std::vector<bool>& keep) {
    require_keep_fits(x.shape().rows(), keep);
    const std::vector<std::uint8_t> flags(keep.begin(), keep.end());
    Tensor out = make(x.shape(), x.type());
    const auto list = array(flags);
    device_.keep_tokens(x.view(), static_cast<const std::uint8_t*>(list.get()), out.view());
    return out;
  }

  Tensor add_bias(const Tensor& y, const Param& bias) {
    if (bias.shape().rank() != 1 || bias.shape().rows() != y.shape().cols())
      throw LayoutError("add_bias cannot add " + bias.shape().str() + " to " + y.shape().str(),
                        {{"state", "a bias needs one entry for each column"}});
    Tensor out = make(y.shape(), type());
    device_.add_bias(y.view(), bias.as_row(), out.view());
    return out;
  }
  Tensor mul(const Tensor& a, const Tensor& b) {
    require_same("mul", a, b);
    Tensor out = make(a.shape(), type());
    device_.mul(a.view(), b.view(), out.view());
    return out;
  }
  Tensor mul_columns(const Tensor& x, const Param& w) {
    require_columns_fit(x.shape(), w.shape());
    Tensor out = make(x.shape(), type());
    device_.mul_columns(x.view(), w.as_row(), out.view());
    return out;
  }
  /// Rounded to the rule, except for a sum of two wide tensors.
  Tensor add(const Tensor& a, const Tensor& b) {
    return sum(a, b, is_wide(a) && is_wide(b) ? cuda::Type::f32 : type());
  }
  Tensor add_unrounded(const Tensor& a, const Tensor& b) { return sum(a, b, cuda::Type::f32); }
  Tensor rounded(const Tensor& x) { return converted(x, type()); }
  Tensor scale(const Tensor& x, Rational factor) {
    return times(x, static_cast<double>(factor.num()) / static_cast<double>(factor.den()));
  }
  Tensor divide_by_sqrt(const Tensor& x, Index n) {
    return times(x, 1 / std::sqrt(static_cast<double>(n)));
  }
  Tensor silu(const Tensor& x) { return activated(cuda::Activation::silu, x); }
  Tensor gelu(const Tensor& x) { return activated(cuda::Activation::gelu, x); }
  Tensor gelu_tanh(const Tensor& x) { return activated(cuda::Activation::gelu_tanh, x); }

  Tensor column_sums(const Tensor& x, Index group) { return row_sums(x, group, false); }
  Tensor square_sums(const Tensor& x, Index group) { return row_sums(x, group, true); }
  Tensor centered(const Tensor& x, const Tensor& sums, Index count) {
    (void)require_statistics_fit(x.shape(), sums.shape());
    Tensor out = make(x.shape(), cuda::Type::f32);
    device_.centered(x.view(), sums.view(), static_cast<double>(count), out.view());
    return out;
  }
  Tensor rms_normalized(const Tensor& x, const Tensor& square_sums, Index count, double eps) {
    (void)require_statistics_fit(x.shape(), square_sums.shape());
    Tensor out = make(x.shape(), type());
    device_.rms_normalized(x.view(), square_sums.view(), static_cast<double>(count), eps,
                           out.view());
    return out;
  }

  Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
              const RopeSpec& spec) {
    require_rope_fits(x.shape(), positions, head_dim, spec);
    if (!turns_.buffer || turns_.positions != positions || !(turns_.spec == spec)) {
      const std::vector<double> table = rope_turns(positions, spec);
      turns_ = {positions, spec, array(table)};
    }
    Tensor out = make(x.shape(), type());
    device_.rope(x.view(), static_cast<const double*>(turns_.buffer.get()), head_dim,
                 spec.rotary_dim / 2, spec.style == RopeStyle::interleaved, out.view());
    return out;
  }
  /// cuda/attention.hpp has the order of rounding.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionSpec& spec,
                   const Param* sinks) {
    require_attention_fits(spec, q.shape(), k.shape(), v.shape(),
                           sinks == nullptr ? std::nullopt : std::optional(sinks->shape().rows()));
    Tensor out = make(Shape(q.shape().rows(), spec.heads * spec.v_head_dim), type());
    const Tensor own_q = converted(q, type()), own_k = converted(k, type()),
                 own_v = converted(v, type());
    detail::device_attention(device_, spec, own_q.view(), own_k.view(), own_v.view(),
                             sinks == nullptr ? cuda::ConstMatrix{} : sinks->as_row(), out.view(),
                             options_.tf32);
    return out;
  }

  // Choices are f32: an id that is rounded to 16 bits is another token.
  Tensor largest(const Tensor& x, Index first_id) {
    require_ids_exact(first_id, x.shape().cols());
    Tensor out = make(Shape(x.shape().rows(), 2), cuda::Type::f32);
    device_.largest(x.view(), first_id, static_cast<float>(no_choice), out.view());
    return out;
  }
  Tensor best_of(const Tensor& pairs) {
    (void)require_pairs(pairs.shape());
    Tensor out = make(Shape(pairs.shape().rows(), 1), cuda::Type::f32);
    device_.best_of(pairs.view(), static_cast<float>(no_choice), out.view());
    return out;
  }

  Tensor slice(const Tensor& x, int dim, Index start, Index length) {
    const Shape s = x.shape();
    if (start < 0 || length < 0 || start > s.dim(dim) - length)
      throw LayoutError(
          "slice reads outside " + s.str(),
          {{"cover", "entries [" + std::to_string(start) + ", " + std::to_string(start + length) +
                         ") of dimension " + std::to_string(dim)}});
    Tensor out = make(s.with(dim, length), x.type());
    device_.copy(x.entries(dim, start, length), out.view());
    return out;
  }
  /// Parts of which some are wide and some are not are all rounded to the rule.
  Tensor concat(std::span<const Tensor* const> parts, int dim) {
    if (parts.empty()) return make(Shape(0, 0), type());
    Index extent = 0;
    for (const Tensor* p : parts) {
      if (p->shape().dim(1 - dim) != parts[0]->shape().dim(1 - dim))
        throw LayoutError("concat cannot join " + parts[0]->shape().str() + " and " +
                              p->shape().str() + " along dimension " + std::to_string(dim),
                          {{"state", "the other dimension must be equal"}});
      extent += p->shape().dim(dim);
    }
    Tensor out = make(parts[0]->shape().with(dim, extent), common_type(parts));
    Index at = 0;
    for (const Tensor* p : parts) {
      const Index n = p->shape().dim(dim);
      device_.copy(p->view(), out.entries(dim, at, n));
      at += n;
    }
    return out;
  }
  /// In the order and with the roundings of options().order.
  Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
    if (parts.empty()) return make(Shape(0, 0), type());
    Tensor out = make(parts[0]->shape(), common_type(parts));
    std::vector<Tensor> own;
    std::vector<const void*> places;
    for (const Tensor* p : parts) {
      require_same("reduce", *parts[0], *p);
      if (p->type() != out.type()) own.push_back(converted(*p, out.type()));
      places.push_back((p->type() != out.type() ? own.back() : *p).view().data);
    }
    const auto list = array(places);
    const auto* in = static_cast<const void* const*>(list.get());
    const auto count = static_cast<Index>(places.size());
    if (op == Reduction::max)
      device_.max_over_ranks(in, count, out.view());
    else
      device_.sum_over_ranks(in, count, sum_order(), out.view());
    return out;
  }

  /// A tensor with these numbers, row by row, rounded to the rule unless it is wide.
  /// @throws LayoutError (state) when they are too few or many
  Tensor from_host(Shape shape, std::span<const float> numbers, bool wide = false) {
    if (static_cast<Index>(numbers.size()) != shape.size())
      throw LayoutError("a tensor needs one number for each element",
                        {{"state", shape.str() + " from " + std::to_string(numbers.size())}});
    Tensor x = make(shape, wide ? cuda::Type::f32 : type());
    detail::send_numbers(device_, x.view(), numbers.data());
    return x;
  }
  /// The numbers of a tensor or parameter, row by row; waits for the device.
  [[nodiscard]] std::vector<float> to_host(const Tensor& x) {
    return detail::fetch_numbers(device_, x.view());
  }
  [[nodiscard]] std::vector<float> to_host(const Param& w) {
    return detail::fetch_numbers(device_, w.view());
  }
  /// For another process, through host memory.
  [[nodiscard]] Bytes pack(const Tensor& x) {
    ByteWriter w;
    w.put(x.shape().rows());
    w.put(x.shape().cols());
    w.put(x.type());
    const std::size_t at = w.bytes.size();
    w.bytes.resize(at + static_cast<std::size_t>(x.shape().size() * cuda::bytes_of(x.type())));
    if (x.shape().size() > 0) device_.download(x.view(), w.bytes.data() + at);
    return std::move(w.bytes);
  }
  /// @throws std::length_error for bytes that are no packed tensor
  [[nodiscard]] Tensor unpack(std::span<const std::byte> bytes) {
    ByteReader r(bytes);
    const auto rows = r.get<Index>(), cols = r.get<Index>();
    DeviceTensor x(device_, Shape(rows, cols), r.get<cuda::Type>());
    Bytes numbers(static_cast<std::size_t>(x.shape().size() * cuda::bytes_of(x.type())));
    r.get_raw(numbers);
    if (numbers.empty()) return x;
    const cuda::Device::Buffer sent =
        device_.array(numbers.data(), static_cast<Index>(numbers.size()));
    device_.copy({sent.get(), rows, cols, cols, x.type()}, x.view());
    return x;
  }

 private:
  struct Turns {
    std::vector<Index> positions;
    RopeSpec spec;
    cuda::Device::Buffer buffer;
  };

  [[nodiscard]] cuda::Type type() const { return device_type(rule_); }
  [[nodiscard]] bool is_wide(const Tensor& x) const { return x.type() != type(); }
  Tensor make(Shape shape, cuda::Type type) { return {device_, shape, type}; }
  template <class T>
  cuda::Device::Buffer array(const std::vector<T>& host) {
    return device_.array(host.data(), static_cast<Index>(host.size() * sizeof(T)));
  }
  Tensor converted(const detail::DeviceMemory& x, cuda::Type to) {
    Tensor out = make(x.shape(), to);
    device_.copy(x.view(), out.view());
    return out;
  }
  Tensor sum(const Tensor& a, const Tensor& b, cuda::Type to) {
    require_same("add", a, b);
    Tensor out = make(a.shape(), to);
    device_.add(a.view(), b.view(), out.view());
    return out;
  }
  Tensor times(const Tensor& x, double factor) {
    Tensor out = make(x.shape(), x.type());
    device_.times(x.view(), factor, out.view());
    return out;
  }
  Tensor activated(cuda::Activation f, const Tensor& x) {
    Tensor out = make(x.shape(), type());
    device_.activate(f, x.view(), out.view());
    return out;
  }
  Tensor row_sums(const Tensor& x, Index group, bool squares) {
    Tensor out =
        make(Shape(x.shape().rows(), statistics_groups(x.shape().cols(), group)), cuda::Type::f32);
    device_.row_sums(x.view(), squares, out.view());
    return out;
  }
  /// cos and sin of each position and pair, times the magnitude, as EigenBackend computes them.
  [[nodiscard]] static std::vector<double> rope_turns(const std::vector<Index>& positions,
                                                      const RopeSpec& spec) {
    const std::vector<double> frequencies = rope_frequencies(spec);
    const double magnitude = rope_magnitude(spec);
    std::vector<double> out;
    out.reserve(positions.size() * frequencies.size() * 2);
    for (const Index position : positions)
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        out.push_back(magnitude * std::cos(angle));
        out.push_back(magnitude * std::sin(angle));
      }
    return out;
  }
  [[nodiscard]] cuda::Type common_type(std::span<const Tensor* const> parts) const {
    for (const Tensor* p : parts)
      if (p->type() != parts[0]->type()) return type();
    return parts[0]->type();
  }
  [[nodiscard]] cuda::SumOrder sum_order() const {
    return options_.order == ReduceOrder::ring   ? cuda::SumOrder::ring
           : options_.order == ReduceOrder::rank ? cuda::SumOrder::rank
                                                 : cuda::SumOrder::once;
  }
  static void require_same(const char* what, const Tensor& a, const Tensor& b) {
    if (a.shape() != b.shape())
      throw LayoutError(std::string(what) + " needs equal shapes",
                        {{"state", a.shape().str() + " and " + b.shape().str()}});
  }

  cuda::Device device_;
  int tp_rank_;
  DType rule_;
  CudaOptions options_;
  Turns turns_;  ///< of the last rope: q, k and all layers of a step share them
};

static_assert(DecoderBackend<CudaBackend> && BackendHasArgmax<CudaBackend>);

}  // namespace tpsim
