// SPDX-License-Identifier: MIT
// Runs a subject's module once per rank on virtual ranks, on any backend, and its full() beside.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tpsim/comm/virtual_ranks.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// What came out of all ranks. A rank without output was stopped by a finding.
template <class B>
struct RankRuns {
  std::vector<std::unique_ptr<B>> backends;  ///< [rank]
  std::vector<std::optional<typename B::Tensor>> outputs;
  std::vector<Finding> findings;  ///< of loading and of the collectives
  Trace trace;
};

/// The columns at `positions`, in that order.
template <class B>
[[nodiscard]] typename B::Tensor take_columns(B& b, const typename B::Tensor& x,
                                              const Runs& positions) {
  std::vector<typename B::Tensor> parts;
  for (const Run& run : positions) {
    if (run.stride == 1)
      parts.push_back(b.slice(x, 1, run.begin, run.length));
    else
      for (Index i = 0; i < run.length; ++i) parts.push_back(b.slice(x, 1, run.at(i), 1));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return join_columns(b, parts);
}

/// Every logical tensor of the checkpoint, whole and in canonical order: what full() reads.
template <class B>
[[nodiscard]] FullParams<B> full_params(B& b, const std::vector<DiskTensor>& tensors) {
  FullParams<B> out;
  for (const DiskTensor& t : tensors)
    for (std::size_t k = 0; k < t.logical.size(); ++k) {
      const Shape shape = t.logical[k]->shape;
      auto it = out.emplace(t.logical[k]->name, b.empty(t.logical[k]->name, shape)).first;
      b.copy(it->second, 0, 0, FullTensor(t.stored, t.layout.parts()[k].disk_rows), 0,
             shape.rows());
    }
  return out;
}

/// What rank `rank` must return, made from full()'s results.
template <class B>
[[nodiscard]] typename B::Tensor expected_output(B& b, const Subject& subject,
                                                 const std::vector<typename B::Tensor>& full,
                                                 std::size_t rank) {
  std::vector<typename B::Tensor> parts;
  for (const DeclaredOutput& o : subject.outputs)
    parts.push_back(take_columns(b, full[o.result], o.columns[rank]));
  return join_columns(b, parts);
}

/// The same tensors without their numbers, so that a backend makes its own.
[[nodiscard]] inline std::vector<DiskTensor> without_values(std::vector<DiskTensor> tensors) {
  for (DiskTensor& t : tensors) {
    auto bare = std::make_shared<StoredTensor>(*t.stored);
    bare->values = nullptr;
    t.stored = std::move(bare);
  }
  return tensors;
}

template <class B>
using MakeBackend = std::function<std::unique_ptr<B>(int rank)>;
/// The input [tokens, input_width] before any cut.
template <class B>
using WholeInput = std::function<typename B::Tensor(B&)>;
/// Called when a rank has loaded everything.
template <class B>
using Loaded = std::function<void(std::size_t rank, B&, ModuleOn<B>&)>;

/// @param tensors  the checkpoint: subject.tensors, perhaps without values
/// @param loaded   may be null
template <class B>
[[nodiscard]] RankRuns<B> run_ranks(const Subject& subject, const std::vector<DiskTensor>& tensors,
                                    const MakeBackend<B>& make_backend,
                                    const WholeInput<B>& whole_input, const Loaded<B>& loaded,
                                    Schedule schedule = {}) {
  RankRuns<B> runs;
  const auto tp = static_cast<std::size_t>(subject.tp);
  for (std::size_t r = 0; r < tp; ++r) runs.backends.push_back(make_backend(static_cast<int>(r)));
  runs.outputs.resize(tp);
  VirtualRanks world{subject.tp, schedule};
  const auto blame = [&](const LayoutError& e, int rank, const std::string& what) {
    for (const Violation& v : e.violations())
      runs.findings.push_back(
          {v.rule, rank, "",
           (rank < 0 ? "" : "rank " + std::to_string(rank) + ": ") + e.subject() + ": " + v.message,
           what, ""});
    if (e.violations().empty()) runs.findings.push_back({"state", rank, "", e.subject(), what, ""});
  };
  try {
    world.run([&](Communicator& comm) {
      const auto r = static_cast<std::size_t>(comm.rank());
      B& b = *runs.backends[r];
      const std::unique_ptr<Communicator> between = subject.between(comm);
      const std::unique_ptr<ModuleOn<B>> module = subject.make(b, between ? *between : comm);
      for (const DiskTensor& t : tensors) {
        try {
          module->load(t);
        } catch (const LayoutError& e) {
          blame(e, comm.rank(), "weight_loader refused " + t.stored->name);
        }
      }
      if (loaded) loaded(r, b, *module);
      typename B::Tensor x = whole_input(b);
      if (const Runs& mine = subject.input_columns[r]; !mine.is_range(0, subject.input_width))
        x = take_columns(b, x, mine);
      runs.outputs[r] = module->forward(x);
    });
  } catch (const CollectiveMismatch& e) {
    runs.findings.push_back({"collectives", -1, "", e.what(),
                             "the ranks do not issue the same collectives",
                             "every rank of a group calls the same collectives in the same order"});
  } catch (const LayoutError& e) {
    blame(e, world.failed_rank(), "the forward pass stopped there");
  }
  runs.trace = world.trace();
  return runs;
}

}  // namespace tpsim
