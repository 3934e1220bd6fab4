// SPDX-License-Identifier: MIT
// Layers and loaders with one fault each: the real class, and the few lines that are wrong.
#pragma once

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

template <class Base>
struct CutAsOne : Base {
  using Base::Base, Base::weight_loader;
  /// One contiguous block of the fused tensor for each rank.
  void weight_loader(typename Base::Param& param, const FullTensor& loaded,
                     const RowLayout& /*disk*/) {
    const Index shard = loaded.shape().rows() / this->tp_size_;
    const Index rows = std::min(shard, this->backend_->shape(param).rows());
    this->backend_->copy(param, 0, 0, loaded, this->tp_rank_ * shard, rows);
  }
};
struct FusedCutAsOne : RealLayers {
  template <class B>
  using Merged = CutAsOne<MergedColumnParallelLinear<B>>;
  template <class B>
  using Qkv = CutAsOne<QKVParallelLinear<B>>;
};

template <class B>
struct ModuloQkv : QKVParallelLinear<B> {
  using Base = QKVParallelLinear<B>;
  using Base::Base;
  void weight_loader(typename Base::Param& param, const FullTensor& loaded, const ShardId& id) {
    const bool q = qkv_shard(id) == 0;
    const Index kv_parts = this->tp_size_ / this->num_kv_head_replicas_;
    const AsRank other(this->tp_rank_, q ? this->tp_rank_
                                         : static_cast<int>(this->tp_rank_ % kv_parts *
                                                            this->num_kv_head_replicas_));
    Base::weight_loader(param, loaded, id);
  }
  void weight_loader(typename Base::Param& param, const FullTensor& loaded, const RowLayout& disk) {
    for (const char* part : {"q", "k", "v"})
      weight_loader(param, loaded.rows(disk.rows_of(part)), part);
  }
};
struct KvHeadModulo : RealLayers {
  template <class B>
  using Qkv = ModuloQkv<B>;
};

template <class B>
struct BiasedRow : RowParallelLinear<B> {
  using Base = RowParallelLinear<B>;
  using Base::Base;
  typename Base::Tensor forward(const typename Base::Tensor& x) {
    typename Base::Tensor y =
        this->apply(this->input_is_parallel_ ? x : this->split_columns(x), true);
    return this->reduce_results_ && this->tp_size_ > 1
               ? all_reduce(*this->backend_, *this->comm_, std::move(y))
               : std::move(y);
  }
};
struct BiasOnEveryRank : RealLayers {
  template <class B>
  using Row = BiasedRow<B>;
};

/// Every weight_loader of `Base`, called as rank 0.
template <class Base>
struct AsRankZero : Base {
  using Base::Base;
  template <class... Args>
  void weight_loader(typename Base::Param& param, const FullTensor& loaded, const Args&... args)
    requires requires(Base& base) { base.weight_loader(param, loaded, args...); }
  {
    const AsRank zero(this->tp_rank_, 0);
    Base::weight_loader(param, loaded, args...);
  }
};
struct RankZero : RealLayers {
  template <class B>
  using Column = AsRankZero<ColumnParallelLinear<B>>;
  template <class B>
  using Row = AsRankZero<RowParallelLinear<B>>;
  template <class B>
  using Merged = AsRankZero<MergedColumnParallelLinear<B>>;
  template <class B>
  using Qkv = AsRankZero<QKVParallelLinear<B>>;
};

// Loaders that are given the wrong thing. -------------------------------------------------------

/// Tensor `a` under the shard id of `b` and the reverse. Parts of unequal size, or of other names
/// than gate and up, are exchanged by their position: the first with the second.
[[nodiscard]] inline auto exchange(std::string a, std::string b, const LayerSpec& spec) {
  if (spec.layer == "merged" && spec.parts.size() >= 2)
    a = spec.parts[0].name, b = spec.parts[1].name;
  return [a, b](const DiskTensor& t, const Subject&) -> std::optional<DiskTensor> {
    std::vector<RowLayout::Part> parts = t.layout.parts();
    for (RowLayout::Part& part : parts)
      if (part.label == a)
        part.label = b;
      else if (part.label == b)
        part.label = a;
    DiskTensor other = t;
    other.layout = RowLayout(std::move(parts));
    return other;
  };
}

/// Values whose row r is row r + 1 of others; the last stays.
class ShiftedValues final : public Values {
 public:
  ShiftedValues(std::shared_ptr<const Values> values, Index rows)
      : values_(std::move(values)), rows_(rows) {}
  void read(Index row, Index col, std::span<float> out) const override {
    values_->read(shifted(row), col, out);
  }
  void read(Index row, Index col, std::span<double> out) const override {
    values_->read(shifted(row), col, out);
  }
  [[nodiscard]] DType dtype() const override { return values_->dtype(); }
  [[nodiscard]] std::span<const std::byte> bytes(Index row, Index col) const override {
    return values_->bytes(shifted(row), col);
  }

 private:
  [[nodiscard]] Index shifted(Index row) const { return std::min(row + 1, rows_ - 1); }
  std::shared_ptr<const Values> values_;
  Index rows_;
};

/// Row i reads row i + 1; the last row is read twice, as a clamped slice would.
[[nodiscard]] inline std::optional<DiskTensor> one_row_late(const DiskTensor& t,
                                                            const Subject& /*subject*/) {
  const Index rows = t.stored->shape.rows();
  auto shifted = std::make_shared<StoredTensor>(*t.stored);
  shifted->identity.clear();
  const auto identity_of = [&](Index row) {
    const Piece p = FullTensor(t.stored).pieces(row, 1, 0, t.stored->shape.cols()).front();
    return RowIdentity{0, 1, p.tensor, p.src_row, 1};
  };
  for (Index r = 0; r < rows; ++r) {
    RowIdentity id = identity_of(std::min(r + 1, rows - 1));
    id.begin = r;
    if (!shifted->identity.empty()) {
      RowIdentity& last = shifted->identity.back();
      if (last.tensor == id.tensor && last.src_begin + last.length == id.src_begin) {
        ++last.length;
        continue;
      }
    }
    shifted->identity.push_back(id);
  }
  if (t.stored->values) shifted->values = std::make_shared<ShiftedValues>(t.stored->values, rows);
  DiskTensor other = t;
  other.stored = std::move(shifted);
  return other;
}

[[nodiscard]] inline std::optional<DiskTensor> without_last_weight(const DiskTensor& t,
                                                                   const Subject& subject) {
  const DiskTensor* last = nullptr;
  for (const DiskTensor& each : subject.tensors)
    if (!is_bias(each)) last = &each;
  return last != nullptr && t.stored->name == last->stored->name ? std::nullopt : std::optional(t);
}

}  // namespace tpsim::detail
