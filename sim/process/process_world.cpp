// SPDX-License-Identifier: MIT
#include "sim/process/process_world.hpp"

#include <cstdio>

#include <fmt/format.h>

#include <tpsim/comm/detail/world.hpp>
#include <tpsim/comm/process/process_ranks.hpp>

namespace tpsim::process {
namespace {

Bytes message(int kind, std::span<const std::byte> payload) {
  Bytes out(payload.size() + 1);
  out.front() = static_cast<std::byte>(kind);
  std::copy(payload.begin(), payload.end(), out.begin() + 1);
  return out;
}

Bytes pack_outcome(const std::vector<detail::RankLog>& logs, const std::vector<Bytes>& failures) {
  ByteWriter w;
  for (std::size_t r = 0; r < logs.size(); ++r) {
    w.put(logs[r].end);
    w.put(static_cast<std::uint64_t>(logs[r].calls.size()));
    for (const detail::LoggedCall& call : logs[r].calls) put(w, call);
    w.put_all(std::span<const std::byte>(failures[r]));
  }
  return std::move(w.bytes);
}
Outcome unpack_outcome(const Bytes& bytes) {
  Outcome out;
  for (ByteReader r(bytes); !r.at_end();) {
    detail::RankLog log;
    log.end = r.get<detail::RankEnd>();
    for (auto n = r.get<std::uint64_t>(); n > 0; --n) log.calls.push_back(detail::get_call(r));
    out.logs.push_back(std::move(log));
    out.failures.push_back(r.get_vector<std::byte>());
  }
  return out;
}

}  // namespace

// --- what all processes do -----------------------------------------------------------------------

World::World(std::unique_ptr<Wire> wire, bool tells)
    : debug(tells), rank(wire->rank()), size(wire->size()), wire_(std::move(wire)) {
  all_ = wire_->all();
  all_->name = "world", all_->rank = rank, all_->size = size;
}

World::~World() {
  if (running_ || broken_) {
    for (auto& g : groups_) g->give_up();
    all_->give_up();
  }
  if (running_ || stopped_ || broken_) return;
  try {
    all_->leave();
    wire_->close();
  } catch (const std::exception&) {  // the others have learned of it, or will
  }
}

void World::run(Function function, void* argument) {
  if (running_) throw std::logic_error("run was called from one of its own ranks");
  if (std::this_thread::get_id() != thread_)
    throw std::logic_error("run was called from another thread than its maker's");
  running_ = true, aborting_ = refused_ = go_ = false;
  ++job_;
  all_->splits = 0;
  trace.clear();
  failed_rank = -1;
  outcome_.reset();
  if (is_root() && debug) {
    board_.emplace(size);
    failures_.assign(static_cast<std::size_t>(size), {});
  }
  call_function(function, argument);
}

void World::call_function(Function function, void* argument) {
  ProcessCommunicator comm(*this, *all_);
  std::exception_ptr own;
  try {
    function(argument, comm);
    if (refused_) throw detail::refusal();
  } catch (const ProcessStopped&) {
    throw;  // and running_ stays: nothing of this world works any more
  } catch (const RankAborted&) {
    if (!aborting_) own = std::current_exception();
  } catch (...) {
    if (broken_) throw;
    if (!aborting_) own = std::current_exception();
  }
  if (!debug) {
    if (own) {
      const Bytes packed = pack_exception(own);
      try {
        throw_packed(rank, packed);
      } catch (const std::exception& e) {
        const auto* told = dynamic_cast<const RemoteError*>(&e);  // names the rank already
        std::fprintf(stderr, "error: rank %d: %s\n", rank,
                     told != nullptr ? told->text().c_str() : e.what());
      }
      wire_->abort();
    }
    detail::Arrival barrier;
    barrier.call.op = CollectiveOp::barrier;
    if (!all_->move(barrier, job_)) stop();
    free_groups();
    running_ = false;
    return;
  }
  if (!aborting_) {
    const Bytes packed = own ? pack_exception(own) : Bytes{};
    const ToRoot kind = own ? ToRoot::failed : ToRoot::returned;
    if (is_root())
      heard(0, kind, packed);
    else
      tell_root(kind, packed);
    wait_for_outcome();
  }
  free_groups();
  running_ = false;
  settle(own);
}

/// Runs what happened once more on virtual ranks, whose word it is what was wrong.
void World::settle(const std::exception_ptr& own) {
  board_.reset();
  const Outcome outcome = *std::exchange(outcome_, std::nullopt);
  detail::Replayed seen = detail::replay(outcome.logs);
  trace = std::move(seen.trace);
  failed_rank = seen.failed_rank;
  if (seen.mismatch) throw CollectiveMismatch(*seen.mismatch);
  if (failed_rank < 0) return;
  if (failed_rank == rank && own) std::rethrow_exception(own);
  throw_packed(failed_rank, outcome.failures[static_cast<std::size_t>(failed_rank)]);
}

void World::require_current(const char* what, std::uint64_t job) const {
  if (std::this_thread::get_id() != thread_ || job != job_ || !running_)
    throw std::logic_error(std::string(what) +
                           ": a communicator works only on the rank that received it, and only "
                           "until its function returns");
}

bool World::may_run() {
  if (std::uncaught_exceptions() > 0) {
    refused_ = true;
    return false;
  }
  if (aborting_) throw RankAborted{rank};
  if (refused_ || std::current_exception() != nullptr) throw detail::refusal();
  return true;
}

Group& World::keep(std::unique_ptr<Group> group) {
  groups_.push_back(std::move(group));
  return *groups_.back();
}
void World::free_groups() {
  for (auto& g : groups_) g->leave();
  groups_.clear();
}

Met World::agree(const detail::LoggedCall& call) {
  ByteWriter w;
  put(w, call);
  if (is_root())
    heard(0, ToRoot::call, w.bytes);
  else
    tell_root(ToRoot::call, w.bytes);
  return wait_for_go();
}

void World::stop() {
  if (!debug) throw std::runtime_error("another rank has failed in a collective");
  if (is_root())
    heard(0, ToRoot::stopped, {});
  else
    tell_root(ToRoot::stopped, {});
  wait_for_outcome();
  aborting_ = true;
  throw RankAborted{rank};
}

Met World::wait_for_go() {
  if (is_root()) {
    listen_until([this] { return go_ || outcome_; });
    if (std::exchange(go_, false)) return board_->met_with();
  } else {
    Message m = from_root(2 * wire_->time_limit_s());
    if (m.kind == FromRoot::go) return ByteReader(m.payload).get<Met>();
    outcome_ = unpack_outcome(m.payload);
  }
  aborting_ = true;
  throw RankAborted{rank};
}

void World::wait_for_outcome() {
  if (is_root())
    listen_until([this] { return outcome_.has_value(); });
  else
    outcome_ = unpack_outcome(from_root(2 * wire_->time_limit_s()).payload);
}

std::vector<Bytes> World::bring(std::span<const std::byte> mine) {
  if (!is_root()) {
    (void)from_root();  // is ready
    wire_->send(0, Channel::data, mine);
    return {};
  }
  std::vector<Bytes> all(static_cast<std::size_t>(size));
  all[0].assign(mine.begin(), mine.end());
  for (int r = 1; r < size; ++r) tell(r, FromRoot::ready, {});
  const double limit = wire_->time_limit_s();
  for (int r = 1; r < size; ++r)
    all[static_cast<std::size_t>(r)] = wire_->wait_for(r, Channel::data, [&](const Pause& pause) {
      look_for_trouble();
      if (pause.is_longer_than(limit)) refuse_to_wait(r, limit);
    });
  return all;
}

Bytes World::share(Bytes of_rank_0) {
  if (is_root()) {
    look_for_trouble();
    for (int r = 1; r < size; ++r) {
      tell(r, FromRoot::data, {});
      wire_->send(r, Channel::data, of_rank_0);
    }
    return of_rank_0;
  }
  (void)from_root();
  return wire_->wait_for(0, Channel::data);
}

int World::finish(int status, const std::string& trouble) {
  if (is_root()) {
    ByteWriter w;
    w.put(status);
    for (int r = 1; r < size; ++r) try {
        tell(r, FromRoot::stop, w.bytes);
      } catch (const RemoteError&) {  // has ended already
      }
    stopped_ = status;
    return status;
  }
  if (broken_) {  // rank 0 does not answer, or is gone
    std::fprintf(stderr, "error: %s\n", trouble.c_str());
    return status != 0 ? status : 2;
  }
  try {
    if (!trouble.empty() && !stopped_)
      wire_->send(0, Channel::trouble, std::as_bytes(std::span(trouble.data(), trouble.size())));
    while (!stopped_) try {
        // Something that this process has no more use for; rank 0 waits until its bytes are taken.
        if (from_root().kind == FromRoot::data) (void)wire_->wait_for(0, Channel::data);
      } catch (const ProcessStopped&) {
      }
  } catch (const RemoteError& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    broken_ = true;
    return status != 0 ? status : 2;
  }
  return *stopped_;
}

// --- all ranks but 0 -----------------------------------------------------------------------------

void World::tell_root(ToRoot kind, std::span<const std::byte> payload) {
  wire_->send(0, Channel::to_root, message(static_cast<int>(kind), payload));
}

void World::refuse_to_wait(int who, double time_limit_s) {
  broken_ = true;
  throw RemoteError(
      who, "", fmt::format("has called nothing for {} s, and others wait for it", time_limit_s));
}

/// @throws RemoteError after the time limit, of which 0 is none
World::Message World::from_root(double time_limit_s) {
  if (stopped_) throw ProcessStopped{*stopped_};
  Bytes bytes = wire_->wait_for(0, Channel::from_root, [&](const Pause& pause) {
    if (pause.is_longer_than(time_limit_s)) refuse_to_wait(0, time_limit_s);
  });
  const auto kind = static_cast<FromRoot>(bytes.at(0));
  bytes.erase(bytes.begin());
  if (kind == FromRoot::stop) {
    stopped_ = ByteReader(bytes).get<int>();
    throw ProcessStopped{*stopped_};
  }
  if (kind == FromRoot::failed) return from_root(time_limit_s);
  return {kind, std::move(bytes)};
}

// --- rank 0 --------------------------------------------------------------------------------------

void World::tell(int to, FromRoot kind, std::span<const std::byte> payload) {
  wire_->send(to, Channel::from_root, message(static_cast<int>(kind), payload));
}

void World::let_go(const std::vector<int>& ranks) {
  ByteWriter met;
  met.put(board_->met_with());
  for (const int r : ranks)
    if (r == 0)
      go_ = true;
    else
      tell(r, FromRoot::go, met.bytes);
}

void World::heard(int from, ToRoot kind, std::span<const std::byte> payload) {
  if (kind == ToRoot::call) {
    ByteReader r(payload);
    let_go(board_->call(from, detail::get_call(r)));
  } else {
    failures_[static_cast<std::size_t>(from)].assign(payload.begin(), payload.end());
    if (kind == ToRoot::failed)
      for (const int r : board_->running())
        if (r != 0 && r != from) tell(r, FromRoot::failed, {});
    let_go(board_->end(from, kind == ToRoot::returned ? detail::RankEnd::returned
                             : kind == ToRoot::failed ? detail::RankEnd::failed
                                                      : detail::RankEnd::stopped));
  }
  if (!board_->still()) return;
  const Bytes outcome = pack_outcome(board_->logs(), failures_);
  for (int r = 1; r < size; ++r) tell(r, FromRoot::outcome, outcome);
  outcome_ = unpack_outcome(outcome);
}

/// Hears one message. @return false if there is none
bool World::listen() {
  const std::optional<Wire::Found> found = wire_->receive(-1, Channel::to_root);
  if (!found) {
    look_for_trouble();
    return false;
  }
  heard(found->from, static_cast<ToRoot>(found->bytes.at(0)), std::span(found->bytes).subspan(1));
  return true;
}

/// @throws RemoteError where a rank lets the others wait too long
void World::listen_until(const std::function<bool()>& done) {
  const double limit = wire_->time_limit_s();
  for (Pause pause; !done();) {
    if (listen()) {
      pause.reset();
      continue;
    }
    pause();
    if (!pause.is_longer_than(limit)) continue;
    const std::vector<int> late = board_->running();
    refuse_to_wait(late.empty() ? 0 : late.front(), limit);
  }
}

/// @throws RemoteError where another rank's program has failed outside of its function
void World::look_for_trouble() {
  const std::optional<Wire::Found> found = wire_->receive(-1, Channel::trouble);
  if (!found) return;
  broken_ = true;
  throw RemoteError(
      found->from, "",
      std::string(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size()));
}

}  // namespace tpsim::process
