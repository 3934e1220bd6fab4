// SPDX-License-Identifier: MIT
// The engine behind VirtualRanks: turns, arrivals, wake-ups, aborts and reports.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/comm/collective_mismatch.hpp>
#include <tpsim/comm/detail/fiber.hpp>
#include <tpsim/comm/detail/group.hpp>
#include <tpsim/comm/detail/perform.hpp>
#include <tpsim/comm/detail/rank_state.hpp>
#include <tpsim/comm/schedule.hpp>

namespace tpsim {

/// Thrown from the collectives of a rank whose world has failed, so that its stack unwinds. Not a
/// std::exception: code that handles errors of its own does not meet it by accident.
struct RankAborted {
  int rank;  ///< of the rank that is told to stop
};

namespace detail {

class World;

/// A group as one of its ranks sees it.
class RankCommunicator final : public Communicator {
 public:
  RankCommunicator(World& world, std::shared_ptr<Group> group, int world_rank, int rank,
                   std::uint64_t job)
      : world_(&world), group_(std::move(group)), world_rank_(world_rank), rank_(rank), job_(job) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] std::string_view group() const override { return group_->name; }
  [[nodiscard]] std::unique_ptr<Communicator> split(
      int color, int key, Site at = std::source_location::current()) override;
  void meet();

 private:
  friend class World;
  void run(const Call& call) override;
  /// Before anything of the world is touched, which may be gone.
  void require_own_rank(CollectiveOp op) const {
    if (Fiber::current() == nullptr || Fiber::current()->id() != job_)
      throw std::logic_error(std::string(name(op)) +
                             ": a communicator works only on the rank that received it, and only "
                             "until its function returns");
  }
  World* world_;
  std::shared_ptr<Group> group_;
  int world_rank_;
  int rank_;
  std::uint64_t job_;
};

class World {
 public:
  using Function = void (*)(void* function, Communicator& comm);

  World(int size, Schedule schedule) : ready_(schedule) {
    if (size < 1 || size > most_ranks)
      throw LayoutError("a world cannot have " + std::to_string(size) + " ranks",
                        {{"collectives", "a world has at least one rank"}},
                        "tp_size can be 1 to " + std::to_string(most_ranks));
    std::vector<int> members(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) members[static_cast<std::size_t>(r)] = r;
    all_ = std::make_shared<Group>("world", std::move(members));
    ranks_.resize(all_->members.size());
    for (int r = 0; r < size; ++r)
      rank(r).comm = std::make_unique<RankCommunicator>(*this, all_, r, r, 0);
  }
  [[nodiscard]] int size() const { return all_->size(); }
  [[nodiscard]] const Trace& trace() const { return trace_; }
  [[nodiscard]] int failed_rank() const { return failed_rank_; }

  void run(Function function, void* argument) {
    if (running_) throw std::logic_error("VirtualRanks::run was called from one of its own ranks");
    begin(function, argument);
    while (!aborting_ && !ready_.empty()) turn(ready_.pop());
    const bool stuck = !aborting_ && returned_ < size();
    if (stuck) fail(std::make_exception_ptr(mismatch()), -1);
    for (Rank& r : ranks_)  // each unwinds: no collective waits any more
      if (r.fiber != nullptr) advance(r);
    running_ = false;
    function_ = nullptr;
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void collective(RankCommunicator& comm, const Call& call) {
    Rank& me = rank(comm.world_rank_);
    if (!may_run(me)) return;
    arrive(comm, make_arrival(call, comm.rank_));
  }

  /// Goes on when every rank has come here or returned. No collective: nothing is traced.
  void meet(RankCommunicator& comm) {
    Rank& me = rank(comm.world_rank_);
    if (aborting_) throw RankAborted{comm.world_rank_};
    me.meeting = true;
    if (!all_meet(comm.world_rank_)) {
      me.fiber->suspend();
      if (aborting_) throw RankAborted{comm.world_rank_};
    }
  }

  std::unique_ptr<Communicator> split(RankCommunicator& comm, int color, int key,
                                      const Call& call) {
    Rank& me = rank(comm.world_rank_);
    if (!may_run(me)) return nullptr;
    Arrival a;
    a.call = call;
    a.color = color;
    a.key = key;
    arrive(comm, std::move(a));
    return std::move(comm.group_->arrivals[static_cast<std::size_t>(comm.rank_)].part);
  }

 private:
  static constexpr int most_ranks = 4096;

  using Rank = RankState;
  [[nodiscard]] Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  void begin(Function function, void* argument) {
    running_ = true;
    function_ = function;
    argument_ = argument;
    aborting_ = false;
    error_ = nullptr;
    failed_rank_ = -1;
    returned_ = 0;
    trace_.clear();
    all_->arrived = 0;
    all_->sequence = 0;
    all_->splits = 0;
    all_->broken.clear();
    all_->agreed = false;
    for (Rank& r : ranks_) {
      r.group = nullptr;
      r.collectives = 0;
      r.waiting = r.meeting = r.returned = r.refused = false;
    }
    ready_.clear();
    ready_.push(all_->members);
  }

  void turn(int r) {
    Rank& me = rank(r);
    if (me.fiber == nullptr) {
      try {
        me.fiber = FiberPool::of_thread().take();
      } catch (...) {
        return fail(std::current_exception(), r);
      }
      me.comm->job_ = next_job();
      me.fiber->start([](void* c) { body(*static_cast<RankCommunicator*>(c)); }, me.comm.get(),
                      me.comm->job_);
    }
    advance(me);
  }
  void advance(Rank& me) {
    me.fiber->resume();
    if (me.fiber->finished()) FiberPool::of_thread().give(std::move(me.fiber));
  }

  /// The first frame of a rank's stack.
  static void body(RankCommunicator& comm) {
    World& world = *comm.world_;
    Rank& me = world.rank(comm.world_rank_);
    try {
      world.function_(world.argument_, comm);
      if (me.refused) throw refusal();
    } catch (const RankAborted&) {
      if (!world.aborting_) world.fail(std::current_exception(), comm.world_rank_);
    } catch (...) {
      world.fail(std::current_exception(), comm.world_rank_);
    }
    me.returned = true;
    ++world.returned_;
    if (!world.aborting_) world.all_meet(-1);
  }
  /// Wakes the ranks of a meeting, all but `here`, once no other is on its way to it.
  bool all_meet(int here) {
    std::vector<int> others;
    for (int r = 0; r < size(); ++r) {
      if (!rank(r).meeting && !rank(r).returned) return false;
      if (rank(r).meeting && r != here) others.push_back(r);
    }
    for (Rank& r : ranks_) r.meeting = false;
    ready_.push(others);
    return true;
  }

  void fail(std::exception_ptr error, int r) {
    if (!aborting_) {
      error_ = std::move(error);
      failed_rank_ = r;
    }
    aborting_ = true;
  }

  /// False where the call must have no effect: inside a destructor that an exception runs, where
  /// another one would end the program. The refusal follows once that exception is over.
  bool may_run(Rank& me) {
    if (std::uncaught_exceptions() > 0) {
      me.refused = true;
      return false;
    }
    if (aborting_) throw RankAborted{me.comm->world_rank_};
    if (me.refused || std::current_exception() != nullptr) throw refusal();
    return true;
  }

  void arrive(RankCommunicator& comm, Arrival arrival) {
    Rank& me = rank(comm.world_rank_);
    Group& g = *comm.group_;
    const auto at = static_cast<std::size_t>(comm.rank_);
    g.arrivals[at] = std::move(arrival);
    ++g.arrived;
    me.group = comm.group_;
    me.group_rank = comm.rank_;
    me.sequence = g.sequence;
    if (g.complete() && finish(comm)) return;
    me.waiting = true;
    me.fiber->suspend();
    me.waiting = false;
    if (aborting_) throw RankAborted{comm.world_rank_};
  }

  /// The last rank is here. False if the calls do not match: all wait for the report then.
  bool finish(RankCommunicator& comm) {
    Group& g = *comm.group_;
    const Arrival& first = g.arrivals.front();
    for (const Arrival& a : g.arrivals)
      if (!match(first, a)) {
        g.broken = differences(g);
        return false;
      }
    g.broken = impossible(g);
    g.agreed = !g.broken.empty();
    if (g.agreed) return false;
    try {
      if (first.call.op == CollectiveOp::split)
        make_parts(g);
      else
        perform(g, scratch_);
      record(g);
    } catch (...) {  // half-done: no rank may go on
      fail(std::current_exception(), comm.world_rank_);
      throw;
    }
    ++g.sequence;
    g.arrived = 0;
    for (const int r : g.members) ++rank(r).collectives;
    ready_.push(g.members, comm.world_rank_);
    return true;
  }

  void record(const Group& g) {
    const Call& call = g.arrivals.front().call;
    const Arrival& a = call.op == CollectiveOp::broadcast
                           ? g.arrivals[static_cast<std::size_t>(call.root)]
                           : g.arrivals.front();
    CollectiveRecord r;
    r.op = call.op;
    r.reduction = call.reduction;
    r.group = g.name;
    r.group_size = g.size();
    r.sequence = g.sequence;
    r.at = call.at;
    if (a.has_input) {
      r.shape = a.shape;
      r.dtype = a.dtype;
      r.bytes = r.array_bytes = a.shape.size() * bytes_of(a.dtype);
    }
    if (joins(call.op)) {
      r.array_bytes = 0;
      for (const Arrival& each : g.arrivals)
        r.array_bytes += each.shape.size() * bytes_of(each.dtype);
    }
    trace_.push_back(std::move(r));
  }

  void make_parts(Group& g) {
    for (SplitPart& p : split_parts(g)) {
      std::vector<int> members;
      for (const int r : p.ranks) members.push_back(g.members[static_cast<std::size_t>(r)]);
      const auto part = std::make_shared<Group>(std::move(p.name), std::move(members));
      for (std::size_t i = 0; i < p.ranks.size(); ++i) {
        const int world_rank = part->members[i];
        g.arrivals[static_cast<std::size_t>(p.ranks[i])].part = std::make_unique<RankCommunicator>(
            *this, part, world_rank, static_cast<int>(i), rank(world_rank).comm->job_);
      }
    }
  }

  /// The report of ranks of which none can go on.
  [[nodiscard]] CollectiveMismatch mismatch() {
    std::vector<RankReport> reports;
    std::vector<Violation> broken;
    std::vector<const Group*> seen;
    bool agreed = false;
    for (int r = 0; r < size(); ++r) {
      const Rank& me = rank(r);
      reports.push_back(report_of(me, r));
      const Group* g = me.group.get();
      if (!me.waiting || std::find(seen.begin(), seen.end(), g) != seen.end()) continue;
      seen.push_back(g);
      agreed = agreed || g->agreed;
      if (g->broken.empty()) broken.push_back(absent_from(*g, ranks_));
      broken.insert(broken.end(), g->broken.begin(), g->broken.end());
    }
    return {std::move(reports), std::move(broken), agreed};
  }
  /// Numbers every start of a rank in the process; 0 is none.
  [[nodiscard]] static std::uint64_t next_job() {
    static std::atomic<std::uint64_t> jobs{0};
    return jobs.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  std::shared_ptr<Group> all_;
  std::vector<Rank> ranks_;
  ReadyQueue ready_;
  Trace trace_;
  std::vector<const void*> scratch_;
  Function function_ = nullptr;
  void* argument_ = nullptr;
  std::exception_ptr error_;
  int failed_rank_ = -1;
  int returned_ = 0;
  bool running_ = false;
  bool aborting_ = false;
};

inline void RankCommunicator::run(const Call& call) {
  require_own_rank(call.op);
  world_->collective(*this, call);
}
inline void RankCommunicator::meet() { world_->meet(*this); }
inline std::unique_ptr<Communicator> RankCommunicator::split(int color, int key, Site at) {
  require_own_rank(CollectiveOp::split);
  return world_->split(*this, color, key,
                       {CollectiveOp::split, Reduction::sum, -1, -1, {}, {}, at});
}

}  // namespace detail
}  // namespace tpsim
