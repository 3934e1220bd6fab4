// SPDX-License-Identifier: MIT
// The ranks of a tensor-parallel group as processes, whatever carries their messages: MpiRanks and
// NcclRanks start one of these.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tpsim/comm/rank_world.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim {

namespace process {
class World;
}

/// Rank 0 has ended the program with this exit status while this process waited for it.
struct ProcessStopped {
  int status;
};

/// The same layer code as on VirtualRanks, one rank in each process of the job:
///
///     MpiRanks world;
///     world.run([&](Communicator& comm) { ... comm.rank() ... });
///
/// Every process makes the same ranks and calls the same functions of them in the same order, on
/// the thread that made them. Results of collectives are those of virtual ranks bit for bit,
/// but where an engine's own reductions are asked for.
class ProcessRanks {
 public:
  virtual ~ProcessRanks();
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  /// Calls `f(comm)` in this process and returns when it has returned in all.
  /// @throws in every process: CollectiveMismatch; the exception that VirtualRanks would have
  ///   rethrown: unchanged on the rank that threw it, elsewhere LayoutError if it was one, or
  ///   RemoteError. A rank that failed is waited for until no other can go on without it.
  template <class F>
  void run(F&& f) {
    using Code = std::remove_reference_t<F>;
    run_function([](void* function,
                    Communicator& comm) { std::invoke(*static_cast<Code*>(function), comm); },
                 const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }
  /// As RankWorld::meet. With the debug option alone.
  static Met meet(Communicator& comm, const Met& mine = {});

  [[nodiscard]] int rank() const;  ///< of this process
  [[nodiscard]] int size() const;
  /// The collectives of the last run, as VirtualRanks has them, in every process; with the debug
  /// option alone.
  [[nodiscard]] const Trace& trace() const;
  [[nodiscard]] int failed_rank() const;

  // Between runs, by all processes alike.
  /// Everybody's bytes on rank 0, by rank; nothing elsewhere.
  [[nodiscard]] std::vector<Bytes> bring(std::span<const std::byte> mine);
  /// Rank 0's bytes everywhere.
  [[nodiscard]] Bytes share(Bytes of_rank_0);

  /// How a program ends on all ranks with rank 0's exit status. Call it last, or from the handler
  /// of an exception that left something above: processes that wait in bring(), share(), run() or
  /// here learn of it. @param trouble  what a rank other than 0 has failed with; "" if it has not
  [[nodiscard]] int finish(int status, const std::string& trouble = {});

 protected:
  explicit ProcessRanks(std::unique_ptr<process::World> world);

 private:
  using Function = void (*)(void* function, Communicator& comm);
  void run_function(Function function, void* argument);
  std::unique_ptr<process::World> world_;
};

/// The processes of a job as the ranks of a check.
class ProcessWorld : public RankWorld {
 public:
  [[nodiscard]] int size() const override { return ranks().size(); }
  [[nodiscard]] bool is_root() const override { return ranks().rank() == 0; }
  [[nodiscard]] bool has(int rank) const override { return ranks().rank() == rank; }
  void run(const std::function<void(Communicator&)>& f) override { ranks().run(f); }
  Met meet(Communicator& comm, const Met& mine = {}) override {
    return ProcessRanks::meet(comm, mine);
  }
  [[nodiscard]] const Trace& trace() const override { return ranks().trace(); }
  [[nodiscard]] int failed_rank() const override { return ranks().failed_rank(); }
  [[nodiscard]] std::vector<Bytes> bring(std::span<const std::byte> mine) override {
    return ranks().bring(mine);
  }
  [[nodiscard]] Bytes share(Bytes of_root) override { return ranks().share(std::move(of_root)); }
  [[nodiscard]] int finish(int status, const std::string& trouble = {}) {
    return ranks().finish(status, trouble);
  }

 private:
  [[nodiscard]] virtual ProcessRanks& ranks() const = 0;
};

/// As a check takes MpiRanks or NcclRanks.
template <class Ranks>
class WorldOf final : public ProcessWorld {
 public:
  template <class... Arguments>
  explicit WorldOf(Arguments&&... arguments) : ranks_(std::forward<Arguments>(arguments)...) {}

 private:
  [[nodiscard]] ProcessRanks& ranks() const override { return ranks_; }
  mutable Ranks ranks_;
};

}  // namespace tpsim
