// SPDX-License-Identifier: MIT
// weight_loaders that are wrong in the way that a LayerChange says: the real loader, called as
// another rank or with another place.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <tpsim/verify/layer_modules.hpp>

namespace tpsim::detail {

/// Pretends for the length of a scope to be another rank.
class AsRank {
 public:
  AsRank(int& tp_rank, int other) : tp_rank_(tp_rank), real_(std::exchange(tp_rank, other)) {}
  ~AsRank() { tp_rank_ = real_; }
  AsRank(const AsRank&) = delete;
  AsRank& operator=(const AsRank&) = delete;

 private:
  int& tp_rank_;
  int real_;
};

/// The copy that a loader makes: `rows` entries along `dim`, from `from` of the tensor to `at` of
/// the parameter.
struct Place {
  int dim = 0;
  Index at = 0, from = 0, rows = 0;
  bool cut = true;  ///< false: a tensor that is whole on every rank
  Index head = 1;   ///< rows of one head
};

/// What every faulty layer starts from: the loader of `Base`, wrong in the way that `change` says.
template <class Base>
struct FaultyLoader : Base {
  using Base::Base;
  using typename Base::Param;
  LayerChange change = LayerChange::none;

  template <class... Args>
  void weight_loader(Param& param, const FullTensor& loaded, const Args&... args)
    requires requires(Base& base) { base.weight_loader(param, loaded, args...); }
  {
    const int rank = this->tp_rank_, size = this->tp_size_;
    if constexpr (sizeof...(Args) == 0) {
      const Shape shape = this->backend_->shape(param);
      if (change == LayerChange::wrong_dimension && shape.rank() == 2 && this->tp_dim_)
        return cut_other_dimension(param, loaded);
      if (is_misplaced(loaded)) {
        const int dim = shape.rank() == 1 ? 0 : this->tp_dim_.value_or(0);
        const bool cut = this->tp_dim_ == dim;
        const Index rows = shape.dim(dim);
        return copy_to({dim, 0, cut ? rank * rows : 0, rows, cut}, param, loaded);
      }
    }
    const AsRank other(this->tp_rank_, change == LayerChange::rank_zero   ? 0
                                       : change == LayerChange::next_part ? (rank + 1) % size
                                                                          : rank);
    Base::weight_loader(param, loaded, args...);
  }

 protected:
  /// Is a parameter copied to or from another place than the right one?
  [[nodiscard]] bool is_misplaced(const FullTensor& loaded) const {
    switch (change) {
      case LayerChange::bias_cut:
      case LayerChange::bias_not_cut:
        return loaded.shape().rank() == 1;
      case LayerChange::channels_permuted:
        return loaded.shape().rank() == 2 || this->tp_dim_ == 0;
      case LayerChange::arrival_order:
      case LayerChange::cut_twice:
      case LayerChange::global_head_count:
      case LayerChange::local_offset:
      case LayerChange::one_head_late:
      case LayerChange::padded_offset:
      case LayerChange::tail_dropped:
        return true;
      default:
        return false;
    }
  }
  /// Copies, without a look at shapes, to the place that `change` makes of the right one.
  void copy_to(Place p, Param& param, const FullTensor& loaded) {
    const Index all = loaded.shape().dim(p.dim), tp = this->tp_size_, rank = this->tp_rank_;
    const Index part = p.cut && p.rows > 0 ? p.from / p.rows : 0;
    constexpr Index block = 8, quad = 4;
    const auto start_at = [&](Index from) { p.from = std::min(from, all - p.rows); };
    switch (change) {
      case LayerChange::channels_permuted:
        return copy_permuted(p, param, loaded);
      case LayerChange::bias_not_cut:
        start_at(0);
        break;
      case LayerChange::bias_cut:  // a bias that belongs whole on every rank
        if (!p.cut) p.rows /= tp, p.from = rank * p.rows;
        break;
      case LayerChange::cut_twice:
        if (p.cut) p.rows /= tp, p.from += rank * p.rows;
        break;
      case LayerChange::local_offset:
        start_at(part * (p.rows / tp));
        break;
      case LayerChange::padded_offset:
        start_at(part * ((p.rows + block - 1) / block * block));
        break;
      case LayerChange::one_head_late:
        start_at(p.from + p.head);
        break;
      case LayerChange::tail_dropped:
        if (p.cut) p.rows -= p.rows % quad;
        break;
      case LayerChange::arrival_order: {
        Index& next = arrived_[loaded.shape().rank() == 1 ? 1 : 0];
        p.at = std::exchange(next, next + p.rows);
        break;
      }
      default:
        break;
    }
    this->backend_->copy(param, p.dim, p.at, loaded, p.from, p.rows);
  }

 private:
  /// Entry i is entry 3 + s i of the tensor, s the smallest step above a third of its extent that
  /// shares no factor with it: every entry once, few beside their neighbours.
  void copy_permuted(Place p, Param& param, const FullTensor& loaded) {
    const Index all = loaded.shape().dim(p.dim);
    Index step = all / 3 + 1;
    while (std::gcd(step, all) != 1) ++step;
    for (Index i = 0; i < p.rows; ++i)
      this->backend_->copy(param, p.dim, p.at + i, loaded, (3 + step * (p.from + i)) % all, 1);
  }
  /// A column layer that holds columns, a row layer that holds rows.
  void cut_other_dimension(Param& param, const FullTensor& loaded) {
    const int dim = 1 - *this->tp_dim_;
    const Index shard = loaded.shape().dim(dim) / this->tp_size_;
    param = this->backend_->empty("weight", loaded.shape().with(dim, shard));
    this->backend_->copy(param, dim, 0, loaded, this->tp_rank_ * shard, shard);
  }
  std::array<Index, 2> arrived_{};  // rows of the weight and of the bias that came so far
};

/// A loader of several parts.
template <class Base>
struct FaultyParts : FaultyLoader<Base> {
  using FaultyLoader<Base>::FaultyLoader;
  using typename Base::Param;

 protected:
  [[nodiscard]] bool is_cut_as_one(const FullTensor& loaded) const {
    return this->change == LayerChange::cut_as_one ||
           (this->change == LayerChange::bias_cut_as_one && loaded.shape().rank() == 1);
  }
  /// One contiguous block of the fused tensor for each rank.
  void cut_as_one(Param& param, const FullTensor& loaded) {
    const Index shard = loaded.shape().rows() / this->tp_size_;
    const Index rows = std::min(shard, this->backend_->shape(param).rows());
    this->backend_->copy(param, 0, 0, loaded, this->tp_rank_ * shard, rows);
  }
};

template <class B>
struct FaultyMerged : FaultyParts<MergedColumnParallelLinear<B>> {
  using Base = MergedColumnParallelLinear<B>;
  using Faulty = FaultyParts<Base>;
  using Faulty::Faulty;
  using typename Base::Param;

  void weight_loader(Param& param, const FullTensor& loaded, const ShardId& id) {
    if (!this->is_misplaced(loaded)) return Faulty::weight_loader(param, loaded, id);
    const std::size_t k = find_shard(this->parts_, id);
    const Index rows = this->parts_[k].rows / this->tp_size_;
    const Index at = rows_of(std::span(this->parts_).first(k)) / this->tp_size_;
    this->copy_to({0, at, this->tp_rank_ * rows, rows}, param, loaded);
  }
  void weight_loader(Param& param, const FullTensor& loaded, const RowLayout& disk) {
    if (this->is_cut_as_one(loaded)) return this->cut_as_one(param, loaded);
    for (const MergedPart& part : this->parts_)
      weight_loader(param, loaded.rows(disk.rows_of(part.name)), part.name);
  }
};

template <class B>
struct FaultyQkv : FaultyParts<QKVParallelLinear<B>> {
  using Base = QKVParallelLinear<B>;
  using Faulty = FaultyParts<Base>;
  using Faulty::Faulty;
  using typename Base::Param;

  void weight_loader(Param& param, const FullTensor& loaded, const ShardId& id) {
    const bool q = qkv_shard(id) == 0;
    if (this->is_misplaced(loaded)) return this->copy_to(place_of(id), param, loaded);
    const AsRank other(this->tp_rank_, q ? this->tp_rank_ : kv_rank());
    Faulty::weight_loader(param, loaded, id);
  }
  void weight_loader(Param& param, const FullTensor& loaded, const RowLayout& disk) {
    if (this->is_cut_as_one(loaded)) return this->cut_as_one(param, loaded);
    for (const char* part : {"q", "k", "v"})
      weight_loader(param, loaded.rows(rows_on_disk(part, disk)), part);
  }

 private:
  /// The rank whose kv heads this one takes.
  [[nodiscard]] int kv_rank() const {
    if (this->change == LayerChange::kv_head_zero) return 0;
    if (this->change != LayerChange::kv_head_modulo) return this->tp_rank_;
    const Index kv_parts = this->tp_size_ / this->num_kv_head_replicas_;
    return static_cast<int>(this->tp_rank_ % kv_parts * this->num_kv_head_replicas_);
  }
  [[nodiscard]] Place place_of(const ShardId& id) const {
    const std::size_t part = qkv_shard(id);
    if (part == 0) {
      const Index rows = this->num_heads_ * this->head_size_;
      return {0, 0, this->tp_rank_ * rows, rows, true, this->head_size_};
    }
    const bool global = this->change == LayerChange::global_head_count;
    const Index q_heads = global ? this->total_num_heads_ : this->num_heads_;
    const Index head = part == 1 ? this->head_size_ : this->v_head_size_;
    const Index rows = this->num_kv_heads_ * head;
    const Index k_rows = part == 1 ? 0 : this->num_kv_heads_ * this->head_size_;
    return {0,
            q_heads * this->head_size_ + k_rows,
            this->tp_rank_ / this->num_kv_head_replicas_ * rows,
            rows,
            true,
            head};
  }
  /// The rows of a part; local_heads_on_disk looks for k and v behind as many query heads as this
  /// rank has.
  [[nodiscard]] Runs rows_on_disk(std::string_view part, const RowLayout& disk) const {
    const Runs& right = disk.rows_of(part);
    if (this->change != LayerChange::local_heads_on_disk || part == "q") return right;
    const Index k = this->num_heads_ * this->head_size_;
    const Index begin = part == "k" ? k : k + this->num_kv_heads_ * this->head_size_;
    return Runs::range(begin, begin + right.size());
  }
};

}  // namespace tpsim::detail
