// SPDX-License-Identifier: MIT
// Faults that real engines had, as small variations of the real layers, loaders and communicators:
// to show that verification finds them, and to learn from.
#pragma once

#include <string>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_list.hpp>
#include <tpsim/verify/fault_spec.hpp>
#include <tpsim/verify/faults/faulty_decoder.hpp>
#include <tpsim/verify/faults/faulty_layers.hpp>
#include <tpsim/verify/faults/faulty_vocab.hpp>
#include <tpsim/verify/linear_subjects.hpp>

namespace tpsim {

/// The layer of `spec` with a variation in it. @pre violations(spec) is empty
/// (A template, as make_subject() is.)
template <class = void>
[[nodiscard]] std::unique_ptr<Subject> make_varied_subject(const LayerSpec& spec,
                                                           Variation variation) {
  if (is_vocab_layer(spec.layer))
    return std::make_unique<VocabSubject<FaultyVocabLayers>>(spec, std::move(variation));
  if (is_decoder_layer(spec.layer))
    return make_decoder_subject<FaultyDecoderLayers>(spec, std::move(variation));
  return std::make_unique<LinearSubject<FaultyLayers>>(spec, std::move(variation));
}

/// The layer of with_parts_of_fault(spec, fault) with that fault in it. Some faults need sizes that
/// show them: spec_for_fault() gives such sizes.
/// @throws LayoutError (names) for an unknown fault or a layer that it does not apply to
template <class = void>
[[nodiscard]] std::unique_ptr<Subject> make_faulty_subject(LayerSpec spec,
                                                           const std::string& fault) {
  const Fault* f = find_fault(fault);
  if (f == nullptr) throw LayoutError("there is no fault '" + fault + "'");
  if (!f->applies_to(spec.layer)) {
    throw LayoutError("the fault '" + fault + "' does not apply to layer " + spec.layer, {},
                      "it applies to " + or_list(f->layers));
  }
  spec = with_parts_of_fault(std::move(spec), fault);
  require_legal(spec);
  return make_varied_subject(spec, f->variation(spec));
}

}  // namespace tpsim
