// SPDX-License-Identifier: MIT
// Runs a subject's module once per rank on any backend, on virtual ranks or where else they live,
// and its full() beside.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/collectives.hpp>
#include <tpsim/comm/rank_world.hpp>
#include <tpsim/verify/fetch.hpp>
#include <tpsim/verify/mismatch_cause.hpp>
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
  if (parts.empty()) return b.slice(x, 1, 0, 0);
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

namespace detail {

/// What a process tells the root of a run: which of the job's processes its rank was, what loading
/// found, and the rank's output.
template <class B>
void bring_runs(RankWorld& world, RankRuns<B>& runs, std::vector<int>& processes) {
  if constexpr (BackendHasPack<B>) {
    ByteWriter w;
    for (std::size_t r = 0; r < processes.size(); ++r) {
      if (processes[r] < 0) continue;
      w.put(r);
      w.put(processes[r]);
      w.put(static_cast<std::uint64_t>(runs.findings.size()));
      for (const Finding& f : runs.findings) put(w, f);
      w.put(runs.outputs[r].has_value());
      if (runs.outputs[r])
        w.put_all(std::span<const std::byte>(runs.backends[r]->pack(*runs.outputs[r])));
    }
    const std::vector<Bytes> all = world.bring(w.bytes);
    if (!world.is_root()) return;
    runs.findings.clear();
    for (const Bytes& bytes : all)
      for (ByteReader in(bytes); !in.at_end();) {
        const auto r = in.get<std::size_t>();
        processes.at(r) = in.get<int>();
        for (auto n = in.get<std::uint64_t>(); n > 0; --n) runs.findings.push_back(get_finding(in));
        if (in.get<bool>() && !runs.outputs[r])
          runs.outputs[r] = runs.backends[r]->unpack(in.get_vector<std::byte>());
        else if (runs.outputs[r])
          (void)in.get_vector<std::byte>();
      }
  } else {
    throw std::logic_error("tensors of this backend cannot leave their process");
  }
}

}  // namespace detail

/// @param tensors  the checkpoint: subject.tensors, perhaps without values
/// @param whole_input  null: the ranks load and compute nothing
/// @param loaded   may be null; called where the rank lives
/// @param elsewhere  where the ranks live; null: in this process. Its root then has everything, the
///   other processes their own rank's
template <class B>
[[nodiscard]] RankRuns<B> run_ranks(const Subject& subject, const std::vector<DiskTensor>& tensors,
                                    const MakeBackend<B>& make_backend,
                                    const WholeInput<B>& whole_input, const Loaded<B>& loaded,
                                    Schedule schedule = {}, RankWorld* elsewhere = nullptr) {
  RankRuns<B> runs;
  const auto tp = static_cast<std::size_t>(subject.tp);
  for (std::size_t r = 0; r < tp; ++r) runs.backends.push_back(make_backend(static_cast<int>(r)));
  runs.outputs.resize(tp);
  const GroupPlace& place = subject.place;
  std::optional<VirtualWorld> here;
  if (elsewhere == nullptr) here.emplace(subject.tp * place.groups, schedule);
  RankWorld& world = here ? *here : *elsewhere;
  if (world.size() != subject.tp * place.groups)
    throw std::logic_error("a world of " + std::to_string(world.size()) + " ranks for tp " +
                           std::to_string(subject.tp));
  std::vector<int> processes(tp, -1);  // [rank]: its number in the job
  const auto blame = [&](const LayoutError& e, int rank, const std::string& what) {
    for (const Violation& v : e.violations())
      runs.findings.push_back(
          {v.rule, rank, "",
           (rank < 0 ? "" : "rank " + std::to_string(rank) + ": ") + e.subject() + ": " + v.message,
           what, ""});
    if (e.violations().empty()) runs.findings.push_back({"state", rank, "", e.subject(), what, ""});
  };
  std::optional<CollectiveMismatch> mismatch;
  std::optional<LayoutError> stopped;
  try {
    world.run([&](Communicator& job) {
      std::unique_ptr<Communicator> part;
      if (!place.is_whole()) {
        const int group = place.group_of(job.rank(), subject.tp);
        part = job.split(group, place.key_of(job.rank()));
        if (group + 1 < place.groups) return;  // the others have work of their own
      }
      Communicator& comm = part ? *part : job;
      const auto r = static_cast<std::size_t>(comm.rank());
      processes[r] = job.rank();
      B& b = *runs.backends[r];
      std::unique_ptr<Communicator> between;
      std::unique_ptr<ModuleOn<B>> module;
      try {
        between = subject.between(comm);
        module = subject.make(b, between ? *between : comm);
      } catch (const LayoutError& e) {
        blame(e, comm.rank(), "the layer refused to be built");
      }
      if (module) {
        for (const DiskTensor& t : tensors) {
          try {
            module->load(t);
          } catch (const LayoutError& e) {
            blame(e, comm.rank(), "weight_loader refused " + t.stored->name);
          }
        }
        if (loaded) loaded(r, b, *module);
      }
      // What the ranks hold is seen on all of them, also when the first forward fails.
      const bool all_built = world.meet(job, {module != nullptr}).well;
      if (!all_built || !whole_input) return;
      typename B::Tensor x = whole_input(b);
      if (const Runs& mine = subject.input_columns[r]; !mine.is_range(0, subject.input_width))
        x = take_columns(b, x, mine);
      runs.outputs[r] = module->forward(x);
      fetch_from(b, *runs.outputs[r]);
    });
  } catch (const CollectiveMismatch& e) {
    mismatch = e;
  } catch (const LayoutError& e) {
    stopped = e;
  }
  if (!here) detail::bring_runs(world, runs, processes);
  if (mismatch)
    runs.findings.push_back({"collectives", -1, "", mismatch->what(),
                             detail::mismatch_cause(mismatch->ranks(), processes),
                             "every rank of a group calls the same collectives in the same order"});
  if (stopped) {
    const auto failed = std::find(processes.begin(), processes.end(), world.failed_rank());
    blame(*stopped, failed == processes.end() ? -1 : static_cast<int>(failed - processes.begin()),
          "the forward pass stopped there");
  }
  runs.trace = world.trace();
  return runs;
}

}  // namespace tpsim
