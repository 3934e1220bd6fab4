// SPDX-License-Identifier: MIT
// The ranks of a tensor-parallel group as processes under mpirun. The library tpsim::mpi has what
// is declared here; nothing of MPI's own headers is needed to use it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <tpsim/comm/rank_world.hpp>
#include <tpsim/core/bytes.hpp>

namespace tpsim {

struct MpiOptions {
  /// Every collective is told to rank 0 before it happens: calls that do not match, a rank that
  /// returns early or throws are findings on all ranks, and there is a trace. One message each way
  /// for a collective, and a group without rank 0 waits until rank 0 waits, too. Without it such
  /// calls hang or do what MPI does, and a rank that throws ends the job (MPI_Abort).
  bool debug = true;
  /// Sums by MPI's own reductions, in any order, where the tensor is plain f32 or f64; data that is
  /// only moved by MPI's collectives. Everything else stays in rank order: sums that round to bf16
  /// or f16 at every hop (their order is part of the result), maxima (MPI_MAX of a NaN is not
  /// defined), sums in a finite field, and messages of 2 GiB and more.
  bool fast = false;
};

/// A call of MPI itself failed.
class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Rank 0 has ended the program with this exit status while this process waited for it.
struct MpiStopped {
  int status;
};

/// The same layer code as on VirtualRanks, one rank in each process of the job:
///
///     MpiRanks world;
///     world.run([&](Communicator& comm) { ... comm.rank() ... });
///
/// Every process makes the same MpiRanks and calls the same functions of it in the same order, on
/// the thread that made the first. Tensors cross by TensorOps::pack(); results of collectives are
/// those of virtual ranks bit for bit (rank 0 of the group, or the root, computes in rank order),
/// but with MpiOptions::fast.
///
/// A process that dies (a signal, abort(), exit() in the middle) ends the job: mpirun sees it, or
/// MPI_Abort is called.
class MpiRanks {
 public:
  /// Starts MPI if nobody has; it is finalized when the program exits. @throws MpiError
  explicit MpiRanks(MpiOptions options = {});
  ~MpiRanks();
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

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
  /// As RankWorld::meet. With MpiOptions::debug alone.
  static Met meet(Communicator& comm, const Met& mine = {});

  [[nodiscard]] int rank() const;  ///< of this process
  [[nodiscard]] int size() const;
  /// The collectives of the last run, as VirtualRanks has them, in every process; with debug alone.
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

  class Impl;

 private:
  using Function = void (*)(void* function, Communicator& comm);
  void run_function(Function function, void* argument);
  std::unique_ptr<Impl> impl_;
};

/// The processes of the job as the ranks of a check.
class MpiWorld final : public RankWorld {
 public:
  explicit MpiWorld(MpiOptions options = {}) : ranks_(options) {}
  [[nodiscard]] int size() const override { return ranks_.size(); }
  [[nodiscard]] bool is_root() const override { return ranks_.rank() == 0; }
  [[nodiscard]] bool has(int rank) const override { return ranks_.rank() == rank; }
  void run(const std::function<void(Communicator&)>& f) override { ranks_.run(f); }
  Met meet(Communicator& comm, const Met& mine = {}) override { return MpiRanks::meet(comm, mine); }
  [[nodiscard]] const Trace& trace() const override { return ranks_.trace(); }
  [[nodiscard]] int failed_rank() const override { return ranks_.failed_rank(); }
  [[nodiscard]] std::vector<Bytes> bring(std::span<const std::byte> mine) override {
    return ranks_.bring(mine);
  }
  [[nodiscard]] Bytes share(Bytes of_root) override { return ranks_.share(std::move(of_root)); }
  [[nodiscard]] int finish(int status, const std::string& trouble = {}) {
    return ranks_.finish(status, trouble);
  }

 private:
  MpiRanks ranks_;
};

}  // namespace tpsim
