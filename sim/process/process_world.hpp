// SPDX-License-Identifier: MIT
// One process's view of the job: its messages with rank 0, and the run that is under way.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <tpsim/comm/detail/call_board.hpp>

#include "sim/process/wire.hpp"

namespace tpsim::process {

/// What a rank tells rank 0, and what rank 0 tells a rank.
enum class ToRoot : std::uint8_t { call, returned, failed, stopped };
/// `failed`: another rank has; whoever waits for it elsewhere need not.
enum class FromRoot : std::uint8_t { go, outcome, ready, data, stop, failed };

/// What is known of a run when it is over.
struct Outcome {
  std::vector<detail::RankLog> logs;
  std::vector<Bytes> failures;  ///< [rank]: what its function threw, packed; empty for nothing
};

[[nodiscard]] Bytes pack_exception(const std::exception_ptr& error);
[[noreturn]] void throw_packed(int rank, const Bytes& packed);

class World {
 public:
  using Function = void (*)(void* function, Communicator& comm);

  /// @param tells  each collective is told to rank 0 before it happens
  World(std::unique_ptr<Wire> wire, bool tells);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

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
  [[nodiscard]] Group& keep(std::unique_ptr<Group> group);
  [[nodiscard]] std::uint64_t job() const { return job_; }

  const bool debug;
  const int rank, size;
  Trace trace;
  int failed_rank = -1;

 private:
  struct Message {
    FromRoot kind;
    Bytes payload;
  };
  [[nodiscard]] bool is_root() const { return rank == 0; }
  void call_function(Function function, void* argument);
  void settle(const std::exception_ptr& own);
  // The other ranks' side.
  void tell_root(ToRoot kind, std::span<const std::byte> payload);
  [[nodiscard]] Message from_root(double time_limit_s = 0);
  [[noreturn]] void refuse_to_wait(int who, double time_limit_s);
  // Rank 0's side.
  void heard(int from, ToRoot kind, std::span<const std::byte> payload);
  void let_go(const std::vector<int>& ranks);
  void tell(int to, FromRoot kind, std::span<const std::byte> payload);
  [[nodiscard]] bool listen();
  void listen_until(const std::function<bool()>& done);
  void look_for_trouble();
  // Both.
  [[nodiscard]] Met wait_for_go();
  void wait_for_outcome();
  void free_groups();

  std::thread::id thread_ = std::this_thread::get_id();
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Group> all_;
  std::vector<std::unique_ptr<Group>> groups_;  ///< of the run, in order of creation
  std::optional<detail::CallBoard> board_;      ///< on rank 0, during a run
  std::vector<Bytes> failures_;                 ///< on rank 0, during a run
  bool go_ = false;                             ///< rank 0 itself may go on
  std::optional<Outcome> outcome_;
  std::optional<int> stopped_;  ///< rank 0 has ended with this status
  std::uint64_t job_ = 0;
  bool running_ = false, aborting_ = false, refused_ = false;
  bool broken_ = false;  ///< another process's program has failed: nothing works any more
};

/// A group as this process sees it.
class ProcessCommunicator final : public Communicator {
 public:
  ProcessCommunicator(World& world, Group& group)
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
  World* world_;
  Group* group_;
  std::uint64_t job_;
  std::string name_;  // the group is gone when a communicator outlives its run
  int rank_, size_;
};

}  // namespace tpsim::process
