// SPDX-License-Identifier: MIT
// Loaders that are given the wrong thing: another tensor, another name, nothing; and layers that
// are built with the wrong sizes.
#pragma once

#include <algorithm>

#include <tpsim/verify/faults/faulty_comm.hpp>
#include <tpsim/verify/layer_modules.hpp>
#include <tpsim/verify/variation.hpp>

namespace tpsim::detail {

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
  const DiskTensor* last = &subject.tensors.back();  // a norm has vectors alone
  for (const DiskTensor& each : subject.tensors)
    if (each.stored->shape.rank() != 1) last = &each;
  return t.stored->name == last->stored->name ? std::nullopt : std::optional(t);
}

[[nodiscard]] inline std::optional<DiskTensor> without_biases(const DiskTensor& t,
                                                              const Subject& /*subject*/) {
  return is_bias(t) ? std::nullopt : std::optional(t);
}

/// A tensor of its own named `from` goes to the place of `to`; the first and the last part of a
/// merged layer whose parts have other names.
[[nodiscard]] inline auto as_if_named(std::string from, std::string to, const LayerSpec& spec) {
  if (spec.layer == "merged" && !spec.parts.empty())
    from = spec.parts.back().name, to = spec.parts.front().name;
  return [from, to](const DiskTensor& t, const Subject&) -> std::optional<DiskTensor> {
    const std::vector<RowLayout::Part>& parts = t.layout.parts();
    if (parts.size() != 1 || parts[0].label != from) return t;
    DiskTensor other = t;
    other.layout = RowLayout({{to, parts[0].disk_rows}});
    return other;
  };
}

/// head_dim as hidden / heads, though the model sets it by itself.
[[nodiscard]] inline LayerSpec with_even_head_dim(LayerSpec s) {
  s.qkv.head_dim = s.qkv.hidden / s.qkv.heads;
  return s;
}
/// As many kv heads as query heads: those of a model without grouped queries.
[[nodiscard]] inline LayerSpec with_a_kv_head_per_head(LayerSpec s) {
  s.qkv.kv_heads = s.qkv.heads;
  return s;
}

/// Tells a layer that it is alone.
class Alone final : public PassOn {
 public:
  using PassOn::PassOn;
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
};

}  // namespace tpsim::detail
