// SPDX-License-Identifier: MIT
#include "sim/check_numeric.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/cuda_numeric.hpp"
#include "sim/subjects.hpp"

namespace tpsim::cli {
namespace {

/// Columns [first, ...) of a tensor. A vector has one column, which every block has.
class ColumnBlock final : public Values {
 public:
  ColumnBlock(std::shared_ptr<const Values> whole, Index first)
      : whole_(std::move(whole)), first_(first) {}
  void read(Index row, Index col, std::span<float> out) const override {
    whole_->read(row, col + first_, out);
  }
  void read(Index row, Index col, std::span<double> out) const override {
    whole_->read(row, col + first_, out);
  }
  [[nodiscard]] DType dtype() const override { return whole_->dtype(); }
  [[nodiscard]] std::span<const std::byte> bytes(Index row, Index col) const override {
    return whole_->bytes(row, col + first_);
  }

 private:
  std::shared_ptr<const Values> whole_;
  Index first_;
};

TensorValues columns_of(const TensorValues& values, Index first) {
  TensorValues out;
  for (const auto& [name, numbers] : values)
    out[name] = name.ends_with(".bias") ? numbers : std::make_shared<ColumnBlock>(numbers, first);
  return out;
}

// The same checks of another block.
void merge(std::vector<CheckResult>& all, std::vector<CheckResult> more) {
  if (all.empty()) return all.swap(more);
  for (std::size_t k = 0; k < all.size() && k < more.size(); ++k) {
    CheckResult& a = all[k];
    CheckResult& b = more[k];
    const bool worse =
        a.result != Outcome::fail &&
        (b.result == Outcome::fail || b.largest_ratio.value_or(-1) > a.largest_ratio.value_or(-1));
    const Index compared = a.compared + b.compared;
    if (worse) std::swap(a, b);
    a.compared = compared;
    a.detection_floor = std::max(a.detection_floor, b.detection_floor);
    for (Finding& f : b.findings) a.findings.push_back(std::move(f));
  }
}

bool is_vocab(const Stage& stage) {
  return stage.what == Stage::What::embedding || stage.what == Stage::What::head;
}

}  // namespace

DType numeric_dtype(const CheckRequest& request, const CheckedModel& model) {
  if (request.dtype) return *request.dtype;
  if (!model.files) return DType::f32;
  const DType own = model.model.dtype.value_or(DType::f32);
  return own == DType::bf16 || own == DType::f16 ? own : DType::f32;
}

std::vector<CheckResult> read_numbers(const Numbers& n, const Stage& stage, bool first) {
  NumericOptions o;
  o.dtype = numeric_dtype(n.request, n.model);
  o.seed = n.request.seed, o.all_reduce = n.request.all_reduce, o.world = n.request.world;
  const std::unique_ptr<NumericEngine> engine = engine_of(n.request.backend, n.request.tf32);
  o.engine = engine.get();
  std::vector<CheckResult> out;
  if (first) {
    const std::unique_ptr<Subject> reduced = n.stages.reduced(stage, numeric_tokens);
    o.stages = !read_statically(*reduced).permuted;
    out.push_back(read_integers(*reduced, o));
  }
  const bool layer = stage.what == Stage::What::layer;
  const TensorValues values =
      n.model.values(layer ? std::optional<Index>(stage.layer) : std::nullopt);
  const VocabShape& vocab = n.model.model.shape.vocab;
  std::vector<CheckResult> rounding;
  if (!is_vocab(stage)) {
    rounding = read_rounding(*n.stages.full(stage, numeric_tokens, values), o);
  } else {
    const Index width = std::max<Index>(1, elements_at_once / std::max<Index>(vocab.vocab, 1));
    for (Index begin = 0; begin < vocab.hidden; begin += width)
      merge(rounding,
            read_rounding(*n.stages.columns(stage, numeric_tokens, columns_of(values, begin),
                                            std::min(width, vocab.hidden - begin)),
                          o));
  }
  for (CheckResult& c : rounding) out.push_back(std::move(c));
  return out;
}

}  // namespace tpsim::cli
