// SPDX-License-Identifier: MIT
// The CUDA backend as the numeric reading takes it: the device computes, and the host bounds how
// far each of its numbers may be from exact arithmetic.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tpsim/backend/cuda/cuda_backend.hpp>
#include <tpsim/backend/cuda/product_error.hpp>
#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/backend/eigen/wire.hpp>

namespace tpsim {

/// A tensor on the device, and what the host knows of it: its numbers and their bounds once they
/// were fetched. A copy shares the device's memory, which nobody writes again.
struct BoundedCudaTensor : eigen::Tensor<float> {
  std::shared_ptr<const DeviceTensor> device;
};
/// A parameter on the device. The host's copy is fetched when a bound needs it.
struct BoundedCudaParam {
  DeviceParam device;
  mutable std::optional<eigen::Param> host = {};
};

/// Every number is the device's. With `track_bounds` each operation also runs on the host, on the
/// numbers and bounds that the device's operands have: EigenBackend<float> gives |its result -
/// exact| <= b. The device's result y is one of the same operation on the same operands, so it has
/// the same bound, but for
///   its own arithmetic: `product_error` in products (operands are given it as a bound: bodies and
///   cuda/attention.hpp have the rest; all other operations are in f64 with functions as accurate
///   as the host's bounds allow, see bodies/activation.hpp), n units of f64 in sums along rows; u
///   |y - the host's result|, since the rounding that ends an operation is bounded by its result.
/// With `tf32` products have the bound of TF32's.
/// The bound holds for any order of summation, so it is wider than the CPU's, whose order is known:
/// K u in place of (256 + 2) u for each block of 256.
class BoundedCudaBackend {
 public:
  using Tensor = BoundedCudaTensor;
  using Param = BoundedCudaParam;

  /// @throws LayoutError as CudaBackend; cuda::Error without a device
  explicit BoundedCudaBackend(int tp_rank = 0, DType rule = DType::f32, EigenOptions options = {},
                              cuda::Device device = cuda::Device::shared())
      : device_(std::move(device), tp_rank, rule, {options.values, options.order, options.tf32}),
        host_(tp_rank, rule, options) {}

  [[nodiscard]] DType rule() const { return host_.rule(); }
  [[nodiscard]] const EigenOptions& options() const { return host_.options(); }
  [[nodiscard]] Shape shape(const Tensor& x) const { return x.device->shape(); }
  [[nodiscard]] Shape shape(const Param& w) const { return w.device.shape(); }
  [[nodiscard]] DType dtype(const Tensor& x) const { return device_.dtype(*x.device); }
  [[nodiscard]] DType dtype(const Param& w) const { return device_.dtype(w.device); }

  Param empty(std::string_view name, Shape shape) { return {device_.empty(name, shape)}; }
  void copy(Param& w, int dim, Index offset, const FullTensor& full, Index start, Index length) {
    w.host.reset();
    device_.copy(w.device, dim, offset, full, start, length);
  }
  void fill_zeros(Param& w, Index row, Index rows) {
    w.host.reset();
    device_.fill_zeros(w.device, row, rows);
  }

  // Inputs, as EigenBackend makes them: exact, rounded to the rule.
  Tensor activation(std::string_view name, Shape shape) {
    return sent(host_.activation(name, shape));
  }
  Tensor activation(const Values& values, Shape shape) {
    return sent(host_.activation(values, shape));
  }
  template <class T>
  Tensor input(const eigen::Matrix<T>& x) {
    return sent(host_.input(x));
  }
  /// Fetches the numbers, which an operation does by itself where bounds are tracked.
  void fetch(Tensor& x) {
    if (x.value.size() == 0) x.value = numbers(*x.device);
  }
  /// For another process: the device's numbers and the host's bounds.
  [[nodiscard]] Bytes pack(const Tensor& x) {
    OnHost host = x;
    if (host.value.size() == 0) host.value = numbers(*x.device);
    return eigen::pack(host);
  }
  [[nodiscard]] Tensor unpack(std::span<const std::byte> bytes) {
    OnHost host = eigen::unpack<float>(bytes);
    const bool wide = host.wide;
    return sent(std::move(host), wide);
  }
  /// As EigenBackend's.
  void set_stage_input(std::function<Tensor(std::size_t call, const Tensor& x)> f) {
    stage_input_ = std::move(f);
    linear_calls_ = 0;
  }

  Tensor linear(const Tensor& given, const Param& w) {
    if (!stage_input_) return product(given, w);
    Tensor own = given;
    fetch(own);
    return product(stage_input_(linear_calls_++, own), w);
  }
  Tensor lookup(const Param& table, const std::vector<Index>& rows) {
    return judged(device_.lookup(table.device, rows),
                  [&] { return host_.lookup(host_of(table), rows); });
  }
  Tensor keep_tokens(const Tensor& x, const std::vector<bool>& keep) {
    return judged(device_.keep_tokens(*x.device, keep), [&] { return host_.keep_tokens(x, keep); });
  }
  Tensor add_bias(const Tensor& y, const Param& bias) {
    return judged(device_.add_bias(*y.device, bias.device),
                  [&] { return host_.add_bias(y, host_of(bias)); });
  }
  Tensor mul(const Tensor& a, const Tensor& b) {
    return judged(device_.mul(*a.device, *b.device), [&] { return host_.mul(a, b); });
  }
  Tensor mul_columns(const Tensor& x, const Param& w) {
    return judged(device_.mul_columns(*x.device, w.device),
                  [&] { return host_.mul_columns(x, host_of(w)); });
  }
  Tensor add(const Tensor& a, const Tensor& b) {
    return judged(device_.add(*a.device, *b.device), [&] { return host_.add(a, b); });
  }
  Tensor add_unrounded(const Tensor& a, const Tensor& b) {
    return judged(device_.add_unrounded(*a.device, *b.device),
                  [&] { return host_.add_unrounded(a, b); });
  }
  Tensor rounded(const Tensor& x) {
    return judged(device_.rounded(*x.device), [&] { return host_.rounded(x); });
  }
  Tensor scale(const Tensor& x, Rational factor) {
    return judged(device_.scale(*x.device, factor), [&] { return host_.scale(x, factor); });
  }
  Tensor silu(const Tensor& x) {
    return judged(device_.silu(*x.device), [&] { return host_.silu(x); });
  }
  Tensor gelu(const Tensor& x) {
    return judged(device_.gelu(*x.device), [&] { return host_.gelu(x); });
  }
  Tensor gelu_tanh(const Tensor& x) {
    return judged(device_.gelu_tanh(*x.device), [&] { return host_.gelu_tanh(x); });
  }

  Tensor column_sums(const Tensor& x, Index group) {
    return summed(x, device_.column_sums(*x.device, group), false,
                  [&] { return host_.column_sums(x, group); });
  }
  Tensor square_sums(const Tensor& x, Index group) {
    return summed(x, device_.square_sums(*x.device, group), true,
                  [&] { return host_.square_sums(x, group); });
  }
  Tensor centered(const Tensor& x, const Tensor& sums, Index count) {
    return judged(device_.centered(*x.device, *sums.device, count),
                  [&] { return host_.centered(x, sums, count); });
  }
  Tensor rms_normalized(const Tensor& x, const Tensor& sums, Index count, double eps) {
    return judged(device_.rms_normalized(*x.device, *sums.device, count, eps),
                  [&] { return host_.rms_normalized(x, sums, count, eps); });
  }

  Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
              const RopeSpec& spec) {
    return judged(device_.rope(*x.device, positions, head_dim, spec),
                  [&] { return host_.rope(x, positions, head_dim, spec); });
  }
  /// The bound is of two steps: from exact operands to the device's (the host's, with the operands'
  /// bounds), and from exact arithmetic on those to the device's arithmetic. For the second, q is
  /// given the error of the scores, and v that of the weights and of their product: weights are
  /// rounded to the type (relative unit, and `eta` where they underflow), so a weighted sum of
  /// values is off by that much of sum p |v|, and by eta sum |v|.
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionSpec& spec,
                   const Param* sinks) {
    const eigen::Param* own = sinks == nullptr || !tracks() ? nullptr : &host_of(*sinks);
    return judged(device_.attention(*q.device, *k.device, *v.device, spec,
                                    sinks == nullptr ? nullptr : &sinks->device),
                  [&] { return attention_on_host(q, k, v, spec, own); });
  }

  Tensor largest(const Tensor& x, Index first_id) {
    return judged(device_.largest(*x.device, first_id), [&] { return host_.largest(x, first_id); });
  }
  Tensor best_of(const Tensor& pairs) {
    return judged(device_.best_of(*pairs.device), [&] { return host_.best_of(pairs); });
  }
  Tensor slice(const Tensor& x, int dim, Index start, Index length) {
    return judged(device_.slice(*x.device, dim, start, length),
                  [&] { return host_.slice(x, dim, start, length); });
  }
  Tensor concat(std::span<const Tensor* const> parts, int dim) {
    const Split both(parts);
    return judged(device_.concat(both.device, dim), [&] { return host_.concat(both.host, dim); });
  }
  Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
    const Split both(parts);
    return judged(device_.reduce(op, both.device), [&] { return host_.reduce(op, both.host); });
  }

 private:
  using OnHost = eigen::Tensor<float>;
  struct Split {
    explicit Split(std::span<const Tensor* const> parts) {
      for (const Tensor* p : parts) {
        device.push_back(p->device.get());
        host.push_back(p);
      }
    }
    std::vector<const DeviceTensor*> device;
    std::vector<const OnHost*> host;
  };

  [[nodiscard]] bool tracks() const { return host_.options().track_bounds; }
  eigen::Matrix<float> numbers(const DeviceTensor& x) {
    const std::vector<float> all = device_.to_host(x);
    eigen::Matrix<float> out(x.shape().rows(), x.shape().cols());
    std::copy(all.begin(), all.end(), out.data());
    return out;
  }
  Tensor sent(OnHost x, bool wide = false) {
    auto device = std::make_shared<const DeviceTensor>(device_.from_host(
        Shape(x.value.rows(), x.value.cols()),
        std::span(x.value.data(), static_cast<std::size_t>(x.value.size())), wide));
    return {std::move(x), std::move(device)};
  }
  /// The device's result, with its bound when bounds are tracked.
  template <class OnTheHost>
  Tensor judged(DeviceTensor y, const OnTheHost& host) {
    Tensor out;
    out.wide = y.type() != device_type(rule());
    if (tracks()) {
      OnHost model = host();
      out.value = numbers(y);
      const bool shapes = out.value.rows() == model.value.rows() &&
                          out.value.cols() == model.value.cols() && model.has_bound();
      if (shapes) {
        const double unit = (out.wide               ? eigen::rounding_of(DType::f32)
                             : rule() == DType::f32 ? eigen::rounding_of(DType::f32)
                                                    : eigen::rounded_twice(rule()))
                                .unit;
        out.bound = model.bound.array() +
                    unit * (out.value.cast<double>() - model.value.cast<double>()).array().abs();
      }
    }
    out.device = std::make_shared<const DeviceTensor>(std::move(y));
    return out;
  }
  Tensor product(const Tensor& x, const Param& w) {
    return judged(device_.linear(*x.device, w.device), [&] {
      const double own = cuda::product_error(x.value.cols(), x.device->type(), options().tf32);
      OnHost widened = x;
      widened.bound = exact(x, own).bound;
      if (x.has_bound()) widened.bound += x.bound;
      return host_.linear(widened, host_of(w));
    });
  }
  /// See attention().
  OnHost attention_on_host(const OnHost& q, const OnHost& k, const OnHost& v,
                           const AttentionSpec& spec, const eigen::Param* sinks) {
    const cuda::Type type = device_type(rule());
    const bool tf32 = options().tf32;
    const eigen::Rounding weight =
        type == cuda::Type::f32 ? eigen::rounding_of(DType::f32) : eigen::rounded_twice(rule());
    // Products in TF32 may take weights below the smallest normal number for zeros.
    const double unit = weight.unit / (1 - weight.unit),
                 eta = 2 * weight.eta + (tf32 ? 0x1p-126 : 0x1p-149);
    const double sum = cuda::product_error(k.value.rows(), type, tf32);
    OnHost out =
        host_.attention(exact(q, cuda::product_error(spec.head_dim, type, tf32)), exact(k, 0),
                        exact(v, (unit + sum * (1 + unit)) * (1 + 0x1p-40)), spec, sinks);
    if (q.has_bound() || k.has_bound() || v.has_bound())
      out.bound += host_.attention(q, k, v, spec, sinks).bound;
    for (Index c = 0; c < out.value.cols(); ++c) {
      const Index column =
          c / spec.v_head_dim / spec.group() * spec.v_head_dim + c % spec.v_head_dim;
      const double values = v.value.col(column).cast<double>().cwiseAbs().sum();
      out.bound.col(c).array() += eta * (1 + sum) * values * (1 + 0x1p-40);
    }
    return out;
  }
  /// n units of f64 more, for a sum in any order.
  template <class OnTheHost>
  Tensor summed(const Tensor& x, DeviceTensor y, bool squares, const OnTheHost& host) {
    return judged(std::move(y), [&] {
      OnHost model = host();
      const Index n = x.value.cols() / model.value.cols();
      for (Index t = 0; t < model.value.rows(); ++t)
        for (Index g = 0; g < model.value.cols(); ++g) {
          const auto terms = x.value.row(t).segment(g * n, n).template cast<double>().array();
          model.bound(t, g) += static_cast<double>(n) * 0x1p-52 *
                               (squares ? terms.square().sum() : terms.abs().sum());
        }
      return model;
    });
  }
  /// x with the bound `relative` |x|.
  [[nodiscard]] static OnHost exact(const OnHost& x, double relative) {
    OnHost out{x.value, x.value.cast<double>().cwiseAbs() * relative, x.wide};
    return out;
  }
  const eigen::Param& host_of(const Param& w) {
    if (!w.host) {
      eigen::Param& host = w.host.emplace(eigen::poisoned(w.device.shape(), rule(), 0));
      const auto fetched = [&](auto zero) {
        using T = decltype(zero);
        auto& m = host.storage.emplace<eigen::Matrix<T>>(w.device.shape().rows(),
                                                         w.device.shape().cols());
        device_.device().download(w.device.view(), m.data());
      };
      if (rule() == DType::f32)
        fetched(float{});
      else
        fetched(std::uint16_t{});
    }
    return *w.host;
  }

  CudaBackend device_;
  EigenBackend<float> host_;
  std::function<Tensor(std::size_t, const Tensor&)> stage_input_;
  std::size_t linear_calls_ = 0;
};

static_assert(DecoderBackend<BoundedCudaBackend> && BackendHasArgmax<BoundedCudaBackend>);

}  // namespace tpsim
