// SPDX-License-Identifier: MIT
// Norms whose weight every rank holds whole: of the residual stream, and of single heads.
#pragma once

#include <optional>
#include <utility>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/layers/linear_options.hpp>

namespace tpsim {

struct NormShape {
  Index width = 0;  ///< columns that are normalized together: hidden, or head_dim
  double eps = 1e-6;
};

[[nodiscard]] inline std::vector<Violation> norm_violations(const NormShape& s) {
  std::vector<Violation> v;
  add_unless_positive(v, s.width, "the width of a norm");
  if (!(s.eps >= 0)) v.push_back({"divide", "a norm's epsilon cannot be negative"});
  return v;
}

/// A norm and the residual stream that it has read.
template <class Tensor>
struct Normed {
  Tensor x, residual;
};

/// The sum goes on to the norm unrounded; the stream keeps it rounded.
/// Source: vLLM `layernorm.py` fused_add_rms_norm; nano-vllm `layers/layernorm.py`.
template <DecoderBackend B, class Norm>
[[nodiscard]] Normed<typename B::Tensor> add_and_norm(B& b, const Norm& norm,
                                                      const typename B::Tensor& x,
                                                      const typename B::Tensor& residual) {
  const typename B::Tensor sum = b.add_unrounded(x, residual);
  return {norm.forward(sum), b.rounded(sum)};
}

/// x / sqrt(mean(x^2) + eps) * weight, over every `width` columns: one norm of the residual stream,
/// or one for each head of a rank.
/// Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019).
template <DecoderBackend B>
class RMSNorm {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  Param weight;  ///< [width], whole on every rank

  /// Needs no other rank: the communicator is there for all layers to be made alike.
  RMSNorm(B& backend, Communicator& /*tp*/, const NormShape& s)
      : weight(backend.empty("weight", (require(norm_violations(s)), Shape(s.width)))),
        backend_(&backend),
        shape_(s) {}

  void weight_loader(Param& param, const FullTensor& loaded) {
    require_shape(loaded, Shape(shape_.width));
    backend_->copy(param, 0, 0, loaded, 0, shape_.width);
  }
  /// x [tokens, n width] -> the same shape
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    const Tensor squares = backend_->square_sums(x, shape_.width);
    return backend_->mul_columns(backend_->rms_normalized(x, squares, shape_.width, shape_.eps),
                                 weight);
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const Param& weight, double eps) {
    const Index n = b.shape(weight).rows();
    return b.mul_columns(b.rms_normalized(x, b.square_sums(x, n), n, eps), weight);
  }

 protected:
  B* backend_;
  NormShape shape_;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias.
/// Source: Ba et al., Layer Normalization (2016).
template <DecoderBackend B>
class LayerNorm {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  Param weight;               ///< [width], whole on every rank
  std::optional<Param> bias;  ///< [width]

  LayerNorm(B& backend, Communicator& /*tp*/, const NormShape& s, bool with_bias)
      : weight(backend.empty("weight", (require(norm_violations(s)), Shape(s.width)))),
        backend_(&backend),
        shape_(s) {
    if (with_bias) bias = backend.empty("bias", Shape(s.width));
  }

  void weight_loader(Param& param, const FullTensor& loaded) {
    require_shape(loaded, Shape(shape_.width));
    backend_->copy(param, 0, 0, loaded, 0, shape_.width);
  }
  /// x [tokens, width] -> the same shape
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    const Tensor around =
        backend_->centered(x, backend_->column_sums(x, shape_.width), shape_.width);
    const Tensor squares = backend_->square_sums(around, shape_.width);
    Tensor y = backend_->mul_columns(
        backend_->rms_normalized(around, squares, shape_.width, shape_.eps), weight);
    return bias ? backend_->add_bias(y, *bias) : std::move(y);
  }

  /// bias: null for none
  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const Param& weight, const Param* bias,
                                   double eps) {
    const Index n = b.shape(weight).rows();
    const Tensor around = b.centered(x, b.column_sums(x, n), n);
    Tensor y = b.mul_columns(b.rms_normalized(around, b.square_sums(around, n), n, eps), weight);
    return bias != nullptr ? b.add_bias(y, *bias) : std::move(y);
  }

 private:
  B* backend_;
  NormShape shape_;
};

enum class NormKind : std::uint8_t { rms, layer, layer_without_bias };

/// The norm of a residual stream, of either kind.
template <DecoderBackend B>
class StreamNorm {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  StreamNorm(B& backend, Communicator& tp, NormKind kind, const NormShape& s) {
    if (kind == NormKind::rms)
      rms_.emplace(backend, tp, s);
    else
      layer_.emplace(backend, tp, s, kind == NormKind::layer);
  }
  [[nodiscard]] Tensor forward(const Tensor& x) const {
    return rms_ ? rms_->forward(x) : layer_->forward(x);
  }
  template <class F>
  void for_each_layer(F&& f) {
    if (rms_) f("", *rms_);
    if (layer_) f("", *layer_);
  }
  /// Of the tensors PREFIXweight and PREFIXbias.
  [[nodiscard]] static Tensor full(B& b, const Tensor& x, NormKind kind, double eps,
                                   const FullParams<B>& t, const std::string& prefix) {
    const Param& weight = t.at(prefix + "weight");
    if (kind == NormKind::rms) return RMSNorm<B>::full(b, x, weight, eps);
    const Param* bias = kind == NormKind::layer ? &t.at(prefix + "bias") : nullptr;
    return LayerNorm<B>::full(b, x, weight, bias, eps);
  }

 private:
  std::optional<RMSNorm<B>> rms_;
  std::optional<LayerNorm<B>> layer_;
};

}  // namespace tpsim
