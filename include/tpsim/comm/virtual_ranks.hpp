// SPDX-License-Identifier: MIT
// All ranks of a tensor-parallel group in one process.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include <tpsim/comm/detail/world.hpp>

namespace tpsim {

/// A world of `tp_size` ranks. `run` calls one function once per rank:
///
///     VirtualRanks world{4};
///     world.run([&](Communicator& comm) { ... comm.rank() ... });
///
/// Ranks take turns on the calling thread and change at collectives alone, so they may share data
/// without locks and a run is repeatable. The last rank to arrive performs the collective, in rank
/// order. Each rank has a stack of 1 MiB, kept for later runs and worlds of the same thread.
///
/// Rules for the function:
/// - a communicator belongs to its rank, and a split's group too, until the function returns;
/// - no collective inside a `catch` block: it throws std::logic_error. In a destructor that an
///   exception runs it does nothing, and std::logic_error follows if that exception is caught;
/// - no collective in a destructor otherwise: RankAborted could not leave it.
class VirtualRanks {
 public:
  /// @throws LayoutError unless 1 <= tp_size <= 4096
  explicit VirtualRanks(int tp_size, Schedule schedule = Schedule::in_order())
      : world_(std::make_unique<detail::World>(tp_size, schedule)) {}

  /// Calls `f(comm)` once per rank and returns when all have returned.
  /// @throws the first exception that leaves `f`, unchanged; failed_rank() is its rank. The other
  ///   ranks unwind: their pending and later collectives throw RankAborted.
  /// @throws CollectiveMismatch where ranks would wait for each other for ever
  template <class F>
  void run(F&& f) {
    using Function = std::remove_reference_t<F>;
    world_->run([](void* function,
                   Communicator& comm) { std::invoke(*static_cast<Function*>(function), comm); },
                const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

  /// For the function: waits until every rank has come here or returned. It is no collective, is
  /// not traced, and ranks of a real world need none: between setting up and what is looked at.
  /// @param comm  the one that run() gave to this rank
  static void meet(Communicator& comm) { dynamic_cast<detail::RankCommunicator&>(comm).meet(); }

  [[nodiscard]] int size() const { return world_->size(); }
  /// The collectives of the last run, in order of completion.
  [[nodiscard]] const Trace& trace() const { return world_->trace(); }
  /// The rank whose exception ended the last run; -1 if none did (success, CollectiveMismatch).
  [[nodiscard]] int failed_rank() const { return world_->failed_rank(); }

 private:
  std::unique_ptr<detail::World> world_;  // communicators point to it
};

}  // namespace tpsim
