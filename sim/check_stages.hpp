// SPDX-License-Identifier: MIT
// The stages of a model, each a subject with inputs of its own: the model is cut where the residual
// stream goes from one to the next.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tpsim/verify/decoder_plan.hpp>
#include <tpsim/verify/reduced_shape.hpp>
#include <tpsim/verify/subject.hpp>

#include "sim/check_model.hpp"

namespace tpsim::cli {

struct Stage {
  enum class What : std::uint8_t { embedding, layer, norm, head } what = What::embedding;
  std::size_t kind = 0;  ///< of a layer: index of BoundModel::kinds
  Index layer = 0;       ///< of a layer: its number
  bool decode = false;   ///< of a layer: token by token, after the cache
  /// "embed_tokens", "layers.0", "layers.0 decode", "norm", "lm_head"
  [[nodiscard]] std::string name() const;
};

/// Makes the stages of one model at one tp.
class StageMaker {
 public:
  /// @param fault  put into the stages that it can be in; "" for none
  StageMaker(const BoundModel& model, int tp, std::string fault);

  /// @param values  CheckedModel::values of its layer, or of what is outside
  [[nodiscard]] std::unique_ptr<Subject> full(const Stage& stage, Index tokens,
                                              const TensorValues& values = {}) const;
  /// The embedding or the head with the first `hidden` columns alone, which are a stage too.
  [[nodiscard]] std::unique_ptr<Subject> columns(const Stage& stage, Index tokens,
                                                 const TensorValues& values, Index hidden) const;
  [[nodiscard]] std::unique_ptr<Subject> reduced(const Stage& stage, Index tokens) const;
  /// The attention alone of a layer at the reduced size, its tensors apart on disk.
  [[nodiscard]] std::unique_ptr<Subject> reduced_attention(const Stage& stage, Index tokens) const;
  /// Can the fault be in this stage?
  [[nodiscard]] bool is_faulty(const Stage& stage) const;

 private:
  struct Sizes {
    DecoderShape layer;
    VocabShape vocab;
  };
  [[nodiscard]] Sizes sizes(std::size_t kind, bool reduced) const;
  [[nodiscard]] std::unique_ptr<Subject> decoder(DecoderPart part, const Stage& stage,
                                                 const DecoderShape& shape, const BoundPlan& plan,
                                                 Index tokens, const TensorValues& values) const;
  [[nodiscard]] std::unique_ptr<Subject> table(const Stage& stage, const VocabShape& vocab,
                                               Index tokens, const TensorValues& values) const;
  [[nodiscard]] std::unique_ptr<Subject> make(const Stage& stage, bool reduced, Index tokens,
                                              const TensorValues& values) const;

  const BoundModel* model_;
  int tp_;
  std::string fault_;
};

}  // namespace tpsim::cli
