// SPDX-License-Identifier: MIT
// The parallel linear layers of a tensor-parallel engine, from the point of view of one rank.
//
// Weights are [out, in]. Column parallel cuts dim 0, row parallel dim 1 (`tp_dim`). Each layer has
// a weight_loader that cuts this rank's part out of the checkpoint's tensor, a forward that calls
// collectives, and full(): what the layer means when nothing is cut.
// Source: nano-vllm `layers/linear.py`; options and KV replication as in vLLM
// `model_executor/layers/linear.py`.
#pragma once

#include <optional>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/core/divide.hpp>
#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layers/shard_id.hpp>

namespace tpsim {

/// What all linear layers hold: weight [out, in] and perhaps bias [out], both of this rank.
template <Backend B>
class LinearBase {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;

  Param weight;
  std::optional<Param> bias;

  [[nodiscard]] int tp_rank() const { return tp_rank_; }
  [[nodiscard]] int tp_size() const { return tp_size_; }
  /// 0: rows are cut, 1: columns are cut, nothing: every rank holds all.
  [[nodiscard]] std::optional<int> tp_dim() const { return tp_dim_; }
  /// Must the caller still sum the result over the ranks?
  [[nodiscard]] bool is_partial() const { return partial_; }
  /// The bias that the caller must add itself, once; null unless skip_bias_add.
  [[nodiscard]] const Param* skipped_bias() const {
    return skip_bias_add_ && bias ? &*bias : nullptr;
  }

 protected:
  LinearBase(B& backend, Communicator& tp, Shape shape, bool with_bias, std::optional<int> tp_dim,
             bool skip_bias_add)
      : weight(backend.empty("weight", shape)),
        backend_(&backend),
        comm_(&tp),
        tp_rank_(tp.rank()),
        tp_size_(tp.size()),
        tp_dim_(tp_dim),
        skip_bias_add_(skip_bias_add) {
    if (with_bias) bias = backend.empty("bias", Shape(shape.rows()));
  }
  /// x [tokens, in] -> x weight^T (+ bias) [tokens, out]
  [[nodiscard]] Tensor apply(const Tensor& x, bool with_bias) const {
    Tensor y = backend_->linear(x, weight);
    return with_bias && bias && !skip_bias_add_ ? backend_->add_bias(y, *bias) : std::move(y);
  }

  B* backend_;
  Communicator* comm_;
  int tp_rank_, tp_size_;
  std::optional<int> tp_dim_;
  bool skip_bias_add_;
  bool partial_ = false;
};

/// Every rank holds and computes all of it.
template <Backend B>
class ReplicatedLinear : public LinearBase<B> {
 public:
  using Base = LinearBase<B>;
  using typename Base::Param, typename Base::Tensor;

  ReplicatedLinear(B& backend, Communicator& tp, Index in, Index out, LinearOptions o = {})
      : Base(backend, tp, Shape(out, in), o.bias, std::nullopt, o.skip_bias_add) {
    require(linear_violations(in, out));
  }
  void weight_loader(Param& param, const FullTensor& loaded) {
    const Shape shape = this->backend_->shape(param);
    require_shape(loaded, shape);
    this->backend_->copy(param, 0, 0, loaded, 0, shape.rows());
  }
  [[nodiscard]] Tensor forward(const Tensor& x) { return this->apply(x, true); }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    return full_linear(b, x, t, "");
  }
};

/// Y = X W^T with the rows of W cut: rank r makes output columns [r out/tp, (r+1) out/tp).
/// @pre  out divides by tp                                      (divide)
/// @post every row of W and of the bias is on exactly one rank  (cover)
template <Backend B>
class ColumnParallelLinear : public LinearBase<B> {
 public:
  using Base = LinearBase<B>;
  using typename Base::Param, typename Base::Tensor;

  ColumnParallelLinear(B& backend, Communicator& tp, Index in, Index out, ColumnOptions o = {})
      : Base(backend, tp,
             Shape((require(column_violations(in, out, o, tp.size())), divide(out, tp.size())), in),
             o.bias, 0, o.skip_bias_add),
        gather_output_(o.gather_output) {}

  void weight_loader(Param& param, const FullTensor& loaded) {
    const Shape shape = this->backend_->shape(param);
    const Index shard = shape.rows();
    require_shape(loaded, shape.with(0, shard * this->tp_size_));
    this->backend_->copy(param, 0, 0, loaded, this->tp_rank_ * shard, shard);
  }
  [[nodiscard]] Tensor forward(const Tensor& x) {
    Tensor y = this->apply(x, true);
    return gather_output_ && this->tp_size_ > 1
               ? all_gather(*this->backend_, *this->comm_, std::move(y))
               : std::move(y);
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    return full_linear(b, x, t, "");
  }

 protected:
  bool gather_output_;
};

/// Several column-parallel weights with one input (gate and up), each cut by itself: a rank holds
/// its part of the first, then of the second, ...
/// @pre  every part divides by tp, not only their sum  (divide)
/// @post part k of rank r lies at row sum(parts[:k]) / tp  (order)
template <Backend B>
class MergedColumnParallelLinear : public LinearBase<B> {
 public:
  using Base = LinearBase<B>;
  using typename Base::Param, typename Base::Tensor;

  MergedColumnParallelLinear(B& backend, Communicator& tp, Index in, std::vector<MergedPart> parts,
                             ColumnOptions o = {})
      : Base(
            backend, tp,
            Shape((require(merged_violations(in, parts, o, tp.size())), rows_of(parts) / tp.size()),
                  in),
            o.bias, 0, o.skip_bias_add),
        parts_(std::move(parts)),
        gather_output_(o.gather_output) {}

  /// One part: `loaded` is [parts[k], in], or [parts[k]] for the bias.
  void weight_loader(Param& param, const FullTensor& loaded, const ShardId& id) {
    const std::size_t k = find_shard(parts_, id);
    require_shape(loaded, this->backend_->shape(param).with(0, parts_[k].rows));
    const Index offset = rows_of(std::span(parts_).first(k)) / this->tp_size_;
    const Index shard = parts_[k].rows / this->tp_size_;
    this->backend_->copy(param, 0, offset, loaded, this->tp_rank_ * shard, shard);
  }
  /// A run of consecutive parts, stored one after the other.
  void weight_loader(Param& param, const FullTensor& loaded, const ShardId& first,
                     const ShardId& last) {
    const std::size_t begin = find_shard(parts_, first), end = find_shard(parts_, last) + 1;
    require_run(begin, end);
    const std::span<const MergedPart> run = std::span(parts_).subspan(begin, end - begin);
    require_shape(loaded, this->backend_->shape(param).with(0, rows_of(run)));
    Index row = 0;
    for (const MergedPart& part : run) {
      weight_loader(param, loaded.rows(Runs::range(row, row + part.rows)), part.name);
      row += part.rows;
    }
  }
  /// All parts in one tensor, in the order that `disk` tells.
  void weight_loader(Param& param, const FullTensor& loaded, const RowLayout& disk) {
    for (const MergedPart& part : parts_)
      weight_loader(param, loaded.rows(disk.rows_of(part.name)), part.name);
  }
  /// [tokens, part 0 of this rank | part 1 of this rank | ...]; gathered: whole parts in order.
  [[nodiscard]] Tensor forward(const Tensor& x) {
    Tensor y = this->apply(x, true);
    return gather_output_ && this->tp_size_ > 1 ? gather_parts(std::move(y)) : std::move(y);
  }

  /// One result a part, in order.
  [[nodiscard]] static std::vector<Tensor> full(B& b, const Tensor& x, const FullParams<B>& t,
                                                std::span<const MergedPart> parts) {
    std::vector<Tensor> y;
    for (const MergedPart& part : parts) y.push_back(full_linear(b, x, t, part.name + "_proj."));
    return y;
  }

 protected:
  /// The ranks' columns arrive as [g0 u0 g1 u1 ...]; a reader expects [g0 g1 ... u0 u1 ...].
  [[nodiscard]] Tensor gather_parts(Tensor y) {
    y = all_gather(*this->backend_, *this->comm_, std::move(y));
    const Index width = rows_of(parts_) / this->tp_size_;
    std::vector<Tensor> pieces;
    Index offset = 0;
    for (const MergedPart& part : parts_) {
      const Index shard = part.rows / this->tp_size_;
      for (int r = 0; r < this->tp_size_; ++r)
        pieces.push_back(this->backend_->slice(y, 1, r * width + offset, shard));
      offset += shard;
    }
    return join_columns(*this->backend_, pieces);
  }
  std::vector<MergedPart> parts_;
  bool gather_output_;
};

/// Query, key and value projections in one, cut by heads: rank r holds its query heads and the kv
/// heads that they read. With more ranks than kv heads, tp / kv_heads neighbours share one.
/// @pre  heads divides by tp; kv_heads divides by tp, or tp by kv_heads  (divide)
/// @post the kv head that query head h reads is on the rank of h         (heads)
template <Backend B>
class QKVParallelLinear : public LinearBase<B> {
 public:
  using Base = LinearBase<B>;
  using typename Base::Param, typename Base::Tensor;

  QKVParallelLinear(B& backend, Communicator& tp, const QkvShape& shape, LinearOptions o = {})
      : Base(backend, tp,
             Shape((require(qkv_violations(shape, tp.size())), local_rows(shape, tp.size())),
                   shape.hidden),
             o.bias, 0, o.skip_bias_add),
        head_size_(shape.head_dim),
        v_head_size_(shape.v_head()),
        total_num_heads_(shape.heads),
        total_num_kv_heads_(shape.kv_heads),
        num_heads_(divide(shape.heads, tp.size())),
        num_kv_heads_(local_kv_heads(shape.kv_heads, tp.size())),
        num_kv_head_replicas_(kv_head_replicas(shape.kv_heads, tp.size())) {}

  /// One of "q", "k", "v" (or 0, 1, 2): `loaded` is [total heads * head size, hidden].
  void weight_loader(Param& param, const FullTensor& loaded, const ShardId& id) {
    Index total = total_num_heads_ * head_size_, shard = num_heads_ * head_size_, offset = 0;
    Index shard_rank = this->tp_rank_;
    if (const std::size_t part = qkv_shard(id); part > 0) {
      const Index size = part == 1 ? head_size_ : v_head_size_;
      total = total_num_kv_heads_ * size;
      offset = num_heads_ * head_size_ + (part == 2 ? num_kv_heads_ * head_size_ : 0);
      shard = num_kv_heads_ * size;
      shard_rank = this->tp_rank_ / num_kv_head_replicas_;
    }
    require_shape(loaded, this->backend_->shape(param).with(0, total));
    this->backend_->copy(param, 0, offset, loaded, shard_rank * shard, shard);
  }
  /// q, k and v in one tensor, in the order that `disk` tells.
  void weight_loader(Param& param, const FullTensor& loaded, const RowLayout& disk) {
    for (const char* part : {"q", "k", "v"})
      weight_loader(param, loaded.rows(disk.rows_of(part)), part);
  }
  /// [tokens, q heads of this rank | its k heads | its v heads]
  [[nodiscard]] Tensor forward(const Tensor& x) { return this->apply(x, true); }

  /// q, k, v, each [tokens, all its heads].
  [[nodiscard]] static std::vector<Tensor> full(B& b, const Tensor& x, const FullParams<B>& t) {
    std::vector<Tensor> y;
    for (const char* part : {"q_proj.", "k_proj.", "v_proj."})
      y.push_back(full_linear(b, x, t, part));
    return y;
  }

  [[nodiscard]] Index num_heads() const { return num_heads_; }
  [[nodiscard]] Index num_kv_heads() const { return num_kv_heads_; }

 protected:
  Index head_size_, v_head_size_, total_num_heads_, total_num_kv_heads_;
  Index num_heads_, num_kv_heads_, num_kv_head_replicas_;
};

/// Y = X W^T with the columns of W cut: rank r multiplies its own columns of X, the ranks' partial
/// products are summed. The bias is whole on every rank and added on rank 0 alone, so that the sum
/// counts it once.
/// @pre  in divides by tp                                    (divide)
/// @post one all_reduce makes the result whole on all ranks  (state)
template <Backend B>
class RowParallelLinear : public LinearBase<B> {
 public:
  using Base = LinearBase<B>;
  using typename Base::Param, typename Base::Tensor;

  RowParallelLinear(B& backend, Communicator& tp, Index in, Index out, RowOptions o = {})
      : Base(backend, tp,
             Shape(out, (require(row_violations(in, out, o, tp.size())), divide(in, tp.size()))),
             o.bias, 1, o.skip_bias_add),
        input_is_parallel_(o.input_is_parallel),
        reduce_results_(o.reduce_results) {
    this->partial_ = !o.reduce_results && tp.size() > 1;
  }

  void weight_loader(Param& param, const FullTensor& loaded) {
    const Shape shape = this->backend_->shape(param);
    if (shape.rank() == 1) {  // the bias is not cut
      require_shape(loaded, shape);
      return this->backend_->copy(param, 0, 0, loaded, 0, shape.rows());
    }
    const Index shard = shape.cols();
    require_shape(loaded, shape.with(1, shard * this->tp_size_));
    this->backend_->copy(param, 1, 0, loaded, this->tp_rank_ * shard, shard);
  }
  /// x: [tokens, in / tp], or [tokens, in] when the input is not parallel
  [[nodiscard]] Tensor forward(const Tensor& x) {
    Tensor y = input_is_parallel_ ? this->apply(x, this->tp_rank_ == 0)
                                  : this->apply(split_columns(x), this->tp_rank_ == 0);
    return reduce_results_ && this->tp_size_ > 1
               ? all_reduce(*this->backend_, *this->comm_, std::move(y))
               : std::move(y);
  }

  [[nodiscard]] static Tensor full(B& b, const Tensor& x, const FullParams<B>& t) {
    return full_linear(b, x, t, "");
  }

 protected:
  [[nodiscard]] Tensor split_columns(const Tensor& x) const {
    const Index shard = this->backend_->shape(this->weight).cols();
    return this->backend_->slice(x, 1, this->tp_rank_ * shard, shard);
  }
  bool input_is_parallel_, reduce_results_;
};

}  // namespace tpsim
