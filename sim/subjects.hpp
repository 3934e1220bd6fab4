// SPDX-License-Identifier: MIT
// Layers as the verifier takes them. subjects.cpp is the one place that instantiates every layer
// on every backend: what includes this header links with it instead.
#pragma once

#include <memory>
#include <string>

#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/run_ranks.hpp>
#include <tpsim/verify/verify.hpp>

namespace tpsim {

#define TPSIM_INSTANTIATE_SUBJECT(EXTERN, ...)  \
  EXTERN template class SubjectOf<__VA_ARGS__>; \
  EXTERN template class __VA_ARGS__;
#define TPSIM_INSTANTIATE_RUNS(EXTERN, B)                                                  \
  EXTERN template RankRuns<B> run_ranks<B>(const Subject&, const std::vector<DiskTensor>&, \
                                           const MakeBackend<B>&, const WholeInput<B>&,    \
                                           const Loaded<B>&, Schedule, RankWorld*);
#define TPSIM_INSTANTIATE_LINEAR(EXTERN)                       \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, LinearSubject<RealLayers>) \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, LinearSubject<FaultyLayers>)
#define TPSIM_INSTANTIATE_VOCAB(EXTERN)                            \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, VocabSubject<RealVocabLayers>) \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, VocabSubject<FaultyVocabLayers>)
#define TPSIM_INSTANTIATE_DECODER(EXTERN)                              \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, DecoderSubject<RealDecoderLayers>) \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, DecoderSubject<FaultyDecoderLayers>)
#define TPSIM_INSTANTIATE_READINGS(EXTERN)                                                         \
  TPSIM_INSTANTIATE_RUNS(EXTERN, SymbolicBackend)                                                  \
  TPSIM_INSTANTIATE_RUNS(EXTERN, FieldBackend)                                                     \
  TPSIM_INSTANTIATE_RUNS(EXTERN, Subject::Numeric)                                                 \
  EXTERN template std::unique_ptr<Subject> make_subject<void>(const LayerSpec&);                   \
  EXTERN template std::unique_ptr<Subject> make_varied_subject<void>(const LayerSpec&, Variation); \
  EXTERN template std::unique_ptr<Subject> make_faulty_subject<void>(LayerSpec,                    \
                                                                     const std::string&);          \
  EXTERN template Report verify<void>(const Subject&, const VerifyOptions&);                       \
  EXTERN template StaticReading read_statically<void>(const Subject&, Schedule, Weakening);        \
  EXTERN template std::vector<CheckResult> read_exactly<void>(                                     \
      const Subject&, const StaticReading&, const ExactOptions&);                                  \
  EXTERN template CheckResult read_integers<void>(const Subject&, const NumericOptions&);          \
  EXTERN template std::vector<CheckResult> read_rounding<void>(const Subject&,                     \
                                                               const NumericOptions&);             \
  EXTERN template std::vector<CheckResult> read_numerically<void>(const Subject&,                  \
                                                                  const NumericOptions&);

TPSIM_INSTANTIATE_LINEAR(extern)
TPSIM_INSTANTIATE_VOCAB(extern)
TPSIM_INSTANTIATE_DECODER(extern)
TPSIM_INSTANTIATE_READINGS(extern)

}  // namespace tpsim

namespace tpsim::cli {

/// The layer of `spec`, with this fault in it unless it is "". @throws LayoutError (illegal shape)
[[nodiscard]] std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault);

}  // namespace tpsim::cli
