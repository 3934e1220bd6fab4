// SPDX-License-Identifier: MIT
// Faults that real engines had, as small variations of the real layers, loaders and communicators:
// to show that verification finds them, and to learn from.
#pragma once

#include <string>
#include <vector>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_list.hpp>
#include <tpsim/verify/fault_spec.hpp>
#include <tpsim/verify/faulty_comm.hpp>
#include <tpsim/verify/faulty_layers.hpp>
#include <tpsim/verify/linear_subjects.hpp>

namespace tpsim {

/// The layer of with_parts_of_fault(spec, fault) with that fault in it. Some faults need sizes that
/// show them: spec_for_fault() gives such sizes.
/// @throws LayoutError (names) for an unknown fault or a layer that it does not apply to
[[nodiscard]] inline std::unique_ptr<Subject> make_faulty_subject(LayerSpec spec,
                                                                  const std::string& fault) {
  const auto it = std::find_if(faults().begin(), faults().end(),
                               [&](const Fault& f) { return f.name == fault; });
  if (it == faults().end()) throw LayoutError("there is no fault '" + fault + "'");
  if (!it->applies_to(spec.layer)) {
    throw LayoutError("the fault '" + fault + "' does not apply to layer " + spec.layer, {},
                      "it applies to " + or_list(it->layers));
  }
  spec = with_parts_of_fault(std::move(spec), fault);
  require_legal(spec);

  if (fault == "fused-cut-as-one")
    return std::make_unique<LinearSubject<detail::FusedCutAsOne>>(spec);
  if (fault == "kv-head-modulo") return std::make_unique<LinearSubject<detail::KvHeadModulo>>(spec);
  if (fault == "bias-on-every-rank")
    return std::make_unique<LinearSubject<detail::BiasOnEveryRank>>(spec);
  if (fault == "rank-zero") return std::make_unique<LinearSubject<detail::RankZero>>(spec);

  Variation variation;
  if (fault == "gate-up-exchanged") variation.before_load = detail::exchange("gate", "up", spec);
  if (fault == "k-v-exchanged") variation.before_load = detail::exchange("k", "v", spec);
  if (fault == "off-by-one-rows") variation.before_load = detail::one_row_late;
  if (fault == "never-written") variation.before_load = detail::without_last_weight;
  if (fault == "missing-all-reduce")
    variation.between = [](Communicator& c) {
      return std::make_unique<detail::RepeatedAllReduce>(c, 0);
    };
  if (fault == "doubled-all-reduce")
    variation.between = [](Communicator& c) {
      return std::make_unique<detail::RepeatedAllReduce>(c, 2);
    };
  if (fault == "sub-group-all-reduce")
    variation.between = [](Communicator& c) {
      return std::make_unique<detail::HalfGroupAllReduce>(c);
    };
  return std::make_unique<LinearSubject<>>(spec, variation);
}

}  // namespace tpsim
