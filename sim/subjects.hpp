// SPDX-License-Identifier: MIT
// Layers as the verifier takes them. subjects.cpp is the one place that instantiates every layer on
// every backend: what includes this header links with it instead.
#pragma once

#include <memory>
#include <string>

#include <tpsim/verify/faults.hpp>
#include <tpsim/verify/run_ranks.hpp>

namespace tpsim {

#define TPSIM_INSTANTIATE_SUBJECT(EXTERN, LAYERS)         \
  EXTERN template class SubjectOf<LinearSubject<LAYERS>>; \
  EXTERN template class LinearSubject<LAYERS>;
#define TPSIM_INSTANTIATE_RUNS(EXTERN, B)                                                  \
  EXTERN template RankRuns<B> run_ranks<B>(const Subject&, const std::vector<DiskTensor>&, \
                                           const MakeBackend<B>&, const WholeInput<B>&,    \
                                           const Loaded<B>&, Schedule);
#define TPSIM_INSTANTIATE(EXTERN)                            \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, RealLayers)              \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, detail::FusedCutAsOne)   \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, detail::KvHeadModulo)    \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, detail::BiasOnEveryRank) \
  TPSIM_INSTANTIATE_SUBJECT(EXTERN, detail::RankZero)        \
  TPSIM_INSTANTIATE_RUNS(EXTERN, SymbolicBackend)            \
  TPSIM_INSTANTIATE_RUNS(EXTERN, FieldBackend)               \
  TPSIM_INSTANTIATE_RUNS(EXTERN, Subject::Numeric)

TPSIM_INSTANTIATE(extern)

}  // namespace tpsim

namespace tpsim::cli {

/// The layer of `spec`, with this fault in it unless it is "". @throws LayoutError (illegal shape)
[[nodiscard]] std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault);

}  // namespace tpsim::cli
