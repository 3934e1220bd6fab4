// SPDX-License-Identifier: MIT
// A norm over all heads of the model, when each rank holds some of them.
#pragma once

#include <utility>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/layers/norm.hpp>

namespace tpsim {

/// Heads whose columns are normalized together, and by how many ranks each of them is held.
struct HeadNormShape {
  Index heads = 0;  ///< of the whole model
  Index head_dim = 0;
  Index replicas = 1;  ///< ranks that hold the same head: its squares count once
  double eps = 1e-6;
};

/// RMSNorm of heads * head_dim columns that are cut by head, with a weight that is cut alike: the
/// ranks exchange their sums of squares, one number a token, instead of the columns. A kv head that
/// several ranks hold would count several times; its share is divided by that number.
/// @post the weight's rows on a rank are the columns that it multiplies  (partners)
/// @post one all_reduce of [tokens, 1]                                  (state)
/// Source: the full-width q and k norm of olmo2 (transformers `models/olmo2`).
template <DecoderBackend B>
class ParallelRMSNorm {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  Param weight;  ///< [local heads head_dim]

  ParallelRMSNorm(B& backend, Communicator& tp, const HeadNormShape& s)
      : weight(backend.empty("weight", Shape(local_heads(s, tp.size()) * s.head_dim))),
        backend_(&backend),
        comm_(&tp),
        shape_(s) {}
  virtual ~ParallelRMSNorm() = default;

  /// `loaded` is [heads head_dim].
  void weight_loader(Param& param, const FullTensor& loaded) {
    const Index shard = backend_->shape(param).rows();
    require_shape(loaded, Shape(shape_.heads * shape_.head_dim));
    backend_->copy(param, 0, 0, loaded, comm_->rank() / shape_.replicas * shard, shard);
  }
  /// x [tokens, local heads head_dim] -> the same shape
  [[nodiscard]] Tensor forward(const Tensor& x) {
    return backend_->mul_columns(normalized(x), weight);
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const Param& weight, double eps) {
    return RMSNorm<B>::full(b, x, weight, eps);
  }

 protected:
  [[nodiscard]] virtual Tensor normalized(const Tensor& x) {
    const Index width = shape_.heads * shape_.head_dim;
    return backend_->rms_normalized(x, shared(backend_->square_sums(x, width)), width, shape_.eps);
  }
  /// Every rank's share of the squares -> those of all heads.
  [[nodiscard]] virtual Tensor shared(Tensor squares) {
    if (comm_->size() == 1) return squares;
    if (shape_.replicas > 1) squares = backend_->scale(squares, Rational(1, shape_.replicas));
    return all_reduce(*backend_, *comm_, std::move(squares));
  }

  B* backend_;
  Communicator* comm_;
  HeadNormShape shape_;

 private:
  static Index local_heads(const HeadNormShape& s, Index tp) {
    std::vector<Violation> v = norm_violations({s.heads * s.head_dim, s.eps});
    if (s.replicas <= 0 || (s.heads * s.replicas) % tp != 0)
      v.push_back(does_not_divide(s.heads, "heads of a norm", tp));
    require(std::move(v));
    return s.heads * s.replicas / tp;
  }
};

}  // namespace tpsim
