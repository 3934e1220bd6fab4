// SPDX-License-Identifier: MIT
// One process's view of the job: its messages with rank 0, and the run that is under way.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <tpsim/comm/detail/call_board.hpp>

#include "sim/mpi/mpi_call.hpp"

namespace tpsim::mpi {

/// A group of processes. Lives until the run is over.
struct MpiGroup {
  std::string name;
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  int splits = 0;
};

/// What a rank tells rank 0, and what rank 0 tells a rank.
enum class ToRoot : std::uint8_t { call, returned, failed, stopped };
enum class FromRoot : std::uint8_t { go, outcome, ready, data, stop };

/// What is known of a run when it is over.
struct Outcome {
  std::vector<detail::RankLog> logs;
  std::vector<Bytes> failures;  ///< [rank]: what its function threw, packed; empty for nothing
};

[[nodiscard]] Bytes pack_exception(const std::exception_ptr& error);
[[noreturn]] void throw_packed(int rank, const Bytes& packed);

}  // namespace tpsim::mpi

namespace tpsim {

class MpiRanks::Impl {
 public:
  explicit Impl(MpiOptions o);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void run(Function function, void* argument);
  [[nodiscard]] std::vector<Bytes> bring(std::span<const std::byte> mine);
  [[nodiscard]] Bytes share(Bytes of_rank_0);
  [[nodiscard]] int finish(int status, const std::string& trouble);

  // For the communicators of the run under way.
  /// @throws std::logic_error on another thread or in a later run
  void require_current(const char* what, std::uint64_t job) const;
  /// As the virtual ranks': false where a call must have no effect.
  [[nodiscard]] bool may_run();
  /// Returns once the whole group calls the same. @return of a meeting. @throws RankAborted
  Met agree(const detail::LoggedCall& call);
  /// Another rank has failed in the middle of a collective. @throws RankAborted
  [[noreturn]] void stop();
  /// Belongs to the run.
  [[nodiscard]] mpi::MpiGroup& keep(mpi::MpiGroup group);
  /// Of messages of this run's collectives: none of an earlier run is left to be mistaken.
  [[nodiscard]] int tag() const { return 16 + static_cast<int>(job_ % 16384); }
  [[nodiscard]] std::uint64_t job() const { return job_; }

  const MpiOptions options;
  int rank = 0, size = 1;
  Trace trace;
  int failed_rank = -1;

 private:
  struct Message {
    mpi::FromRoot kind;
    Bytes payload;
  };
  [[nodiscard]] bool is_root() const { return rank == 0; }
  void call_function(Function function, void* argument);
  void settle(const std::exception_ptr& own);
  // The other ranks' side.
  void tell_root(mpi::ToRoot kind, std::span<const std::byte> payload);
  [[nodiscard]] Message from_root();
  // Rank 0's side.
  void heard(int from, mpi::ToRoot kind, std::span<const std::byte> payload);
  void let_go(const std::vector<int>& ranks);
  void tell(int to, mpi::FromRoot kind, std::span<const std::byte> payload);
  [[nodiscard]] bool listen();
  void look_for_trouble();
  // Both.
  [[nodiscard]] Met wait_for_go();
  void wait_for_outcome();
  void free_groups();

  std::thread::id thread_ = std::this_thread::get_id();
  MPI_Comm control_ = MPI_COMM_NULL;
  mpi::MpiGroup world_;
  std::vector<std::unique_ptr<mpi::MpiGroup>> groups_;  ///< of the run, in order of creation
  std::optional<detail::CallBoard> board_;              ///< on rank 0, during a run
  std::vector<Bytes> failures_;                         ///< on rank 0, during a run
  bool go_ = false;                                     ///< rank 0 itself may go on
  std::optional<mpi::Outcome> outcome_;
  std::optional<int> stopped_;  ///< rank 0 has ended with this status
  std::uint64_t job_ = 0;
  bool running_ = false, aborting_ = false, refused_ = false;
  bool broken_ = false;  ///< another process's program has failed: nothing works any more
};

namespace mpi {

/// A group as this process sees it.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiRanks::Impl& world, MpiGroup& group)
      : world_(&world),
        group_(&group),
        job_(world.job()),
        name_(group.name),
        rank_(group.rank),
        size_(group.size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view group() const override { return name_; }
  [[nodiscard]] std::unique_ptr<Communicator> split(
      int color, int key, Site at = std::source_location::current()) override;
  [[nodiscard]] Met meet(const Met& mine);

 private:
  void run(const Call& call) override;
  MpiRanks::Impl* world_;
  MpiGroup* group_;
  std::uint64_t job_;
  std::string name_;  // the group is gone when a communicator outlives its run
  int rank_, size_;
};

/// How a collective that all ranks of a group agree on moves its tensors.
class Transport {
 public:
  /// @param tag  of its messages
  Transport(const MpiGroup& group, int tag, bool fast) : group_(&group), tag_(tag), fast_(fast) {}
  /// @return false where another rank has failed; what this rank throws the others learn
  [[nodiscard]] bool operator()(const detail::Arrival& mine) const;

 private:
  [[nodiscard]] bool in_rank_order(const detail::Arrival& mine) const;
  [[nodiscard]] bool at_center(const detail::Arrival& mine, int center) const;
  [[nodiscard]] bool elsewhere(const detail::Arrival& mine, int center) const;
  [[nodiscard]] bool broadcast(const detail::Arrival& mine) const;
  void send_failures(const std::vector<bool>& done, int center) const;
  /// nothing: not for this collective, all ranks agree on that
  [[nodiscard]] std::optional<bool> fast(const detail::Arrival& mine) const;
  [[nodiscard]] std::optional<bool> fast_sum(const detail::Arrival& mine) const;
  [[nodiscard]] std::optional<bool> fast_move(const detail::Arrival& mine) const;
  /// What each rank has to do before all can go on, and the least of what they return. @throws what
  /// this rank's own has thrown, when the others know
  [[nodiscard]] int vote(const std::function<int()>& prepare) const;

  const MpiGroup* group_;
  int tag_;
  bool fast_;
};

}  // namespace mpi
}  // namespace tpsim
