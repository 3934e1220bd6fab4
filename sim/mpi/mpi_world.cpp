// SPDX-License-Identifier: MIT
#include "sim/mpi/mpi_world.hpp"

#include <cstdio>
#include <cstdlib>

#include <tpsim/comm/detail/world.hpp>

namespace tpsim {

using mpi::FromRoot;
using mpi::ToRoot;

namespace {

constexpr int tag_to_root = 1, tag_from_root = 2, tag_data = 3, tag_trouble = 4;
int living_worlds = 0;

/// Run when the program exits. Whoever leaves while others count on him ends the job.
void at_exit() {
  int finalized = 0;
  if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
  if (living_worlds > 0) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "error: rank %d ended its process while the others wait for it\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  MPI_Finalize();
}

void start_mpi() {
  int started = 0;
  TPSIM_MPI(MPI_Initialized(&started));
  if (started != 0) return;
  int provided = 0;
  TPSIM_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
  std::atexit(at_exit);
}

Bytes message(int kind, std::span<const std::byte> payload) {
  Bytes out(payload.size() + 1);
  out.front() = static_cast<std::byte>(kind);
  std::copy(payload.begin(), payload.end(), out.begin() + 1);
  return out;
}

/// The message that a probe has found.
Bytes receive_found(MPI_Comm comm, const MPI_Status& found) {
  int size = 0;
  TPSIM_MPI(MPI_Get_count(&found, MPI_BYTE, &size));
  Bytes bytes(static_cast<std::size_t>(size));
  TPSIM_MPI(MPI_Recv(bytes.data(), size, MPI_BYTE, found.MPI_SOURCE, found.MPI_TAG, comm,
                     MPI_STATUS_IGNORE));
  return bytes;
}
std::optional<MPI_Status> probe(MPI_Comm comm, int from, int tag) {
  MPI_Status status;
  int found = 0;
  TPSIM_MPI(MPI_Iprobe(from, tag, comm, &found, &status));
  return found != 0 ? std::optional(status) : std::nullopt;
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
mpi::Outcome unpack_outcome(const Bytes& bytes) {
  mpi::Outcome out;
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

MpiRanks::Impl::Impl(MpiOptions o) : options(o) {
  start_mpi();
  TPSIM_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control_));
  TPSIM_MPI(MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN));
  TPSIM_MPI(MPI_Comm_dup(control_, &world_.comm));
  TPSIM_MPI(MPI_Comm_rank(control_, &rank));
  TPSIM_MPI(MPI_Comm_size(control_, &size));
  world_.name = "world", world_.rank = rank, world_.size = size;
  ++living_worlds;
}

MpiRanks::Impl::~Impl() {
  --living_worlds;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || running_ || stopped_) return;
  MPI_Comm_free(&world_.comm);
  MPI_Comm_free(&control_);
}

void MpiRanks::Impl::run(Function function, void* argument) {
  if (running_) throw std::logic_error("MpiRanks::run was called from one of its own ranks");
  if (std::this_thread::get_id() != thread_)
    throw std::logic_error("MpiRanks::run was called from another thread than its maker's");
  running_ = true, aborting_ = refused_ = go_ = false;
  ++job_;
  world_.splits = 0;
  trace.clear();
  failed_rank = -1;
  outcome_.reset();
  if (is_root() && options.debug) {
    board_.emplace(size);
    failures_.assign(static_cast<std::size_t>(size), {});
  }
  call_function(function, argument);
}

void MpiRanks::Impl::call_function(Function function, void* argument) {
  mpi::MpiCommunicator comm(*this, world_);
  std::exception_ptr own;
  try {
    function(argument, comm);
    if (refused_) throw detail::refusal();
  } catch (const MpiStopped&) {
    throw;  // and running_ stays: nothing of this world works any more
  } catch (const RankAborted&) {
    if (!aborting_) own = std::current_exception();
  } catch (...) {
    if (broken_) throw;
    if (!aborting_) own = std::current_exception();
  }
  if (!options.debug) {
    if (own) {
      const Bytes packed = mpi::pack_exception(own);
      try {
        mpi::throw_packed(rank, packed);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "error: rank %d: %s\n", rank, e.what());
      }
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
    TPSIM_MPI(MPI_Barrier(world_.comm));
    free_groups();
    running_ = false;
    return;
  }
  if (!aborting_) {
    const Bytes packed = own ? mpi::pack_exception(own) : Bytes{};
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
void MpiRanks::Impl::settle(const std::exception_ptr& own) {
  board_.reset();
  const mpi::Outcome outcome = *std::exchange(outcome_, std::nullopt);
  detail::Replayed seen = detail::replay(outcome.logs);
  trace = std::move(seen.trace);
  failed_rank = seen.failed_rank;
  if (seen.mismatch) throw CollectiveMismatch(*seen.mismatch);
  if (failed_rank < 0) return;
  if (failed_rank == rank && own) std::rethrow_exception(own);
  mpi::throw_packed(failed_rank, outcome.failures[static_cast<std::size_t>(failed_rank)]);
}

void MpiRanks::Impl::require_current(const char* what, std::uint64_t job) const {
  if (std::this_thread::get_id() != thread_ || job != job_ || !running_)
    throw std::logic_error(std::string(what) +
                           ": a communicator works only on the rank that received it, and only "
                           "until its function returns");
}

bool MpiRanks::Impl::may_run() {
  if (std::uncaught_exceptions() > 0) {
    refused_ = true;
    return false;
  }
  if (aborting_) throw RankAborted{rank};
  if (refused_ || std::current_exception() != nullptr) throw detail::refusal();
  return true;
}

mpi::MpiGroup& MpiRanks::Impl::keep(mpi::MpiGroup group) {
  groups_.push_back(std::make_unique<mpi::MpiGroup>(std::move(group)));
  return *groups_.back();
}
void MpiRanks::Impl::free_groups() {
  for (auto& g : groups_) TPSIM_MPI(MPI_Comm_free(&g->comm));
  groups_.clear();
}

Met MpiRanks::Impl::agree(const detail::LoggedCall& call) {
  ByteWriter w;
  put(w, call);
  if (is_root())
    heard(0, ToRoot::call, w.bytes);
  else
    tell_root(ToRoot::call, w.bytes);
  return wait_for_go();
}

void MpiRanks::Impl::stop() {
  if (!options.debug) throw std::runtime_error("another rank has failed in a collective");
  if (is_root())
    heard(0, ToRoot::stopped, {});
  else
    tell_root(ToRoot::stopped, {});
  wait_for_outcome();
  aborting_ = true;
  throw RankAborted{rank};
}

Met MpiRanks::Impl::wait_for_go() {
  if (is_root()) {
    for (mpi::Pause pause; !go_ && !outcome_;)
      if (listen())
        pause.reset();
      else
        pause();
    if (std::exchange(go_, false)) return board_->met_with();
  } else {
    Message m = from_root();
    if (m.kind == FromRoot::go) return ByteReader(m.payload).get<Met>();
    outcome_ = unpack_outcome(m.payload);
  }
  aborting_ = true;
  throw RankAborted{rank};
}

void MpiRanks::Impl::wait_for_outcome() {
  if (!is_root()) {
    outcome_ = unpack_outcome(from_root().payload);
    return;
  }
  for (mpi::Pause pause; !outcome_;)
    if (listen())
      pause.reset();
    else
      pause();
}

std::vector<Bytes> MpiRanks::Impl::bring(std::span<const std::byte> mine) {
  if (!is_root()) {
    (void)from_root();  // is ready
    mpi::send_sized(control_, 0, tag_data, mine);
    return {};
  }
  std::vector<Bytes> all(static_cast<std::size_t>(size));
  all[0].assign(mine.begin(), mine.end());
  for (int r = 1; r < size; ++r) tell(r, FromRoot::ready, {});
  for (int r = 1; r < size; ++r) {
    for (mpi::Pause pause; !probe(control_, r, tag_data); pause()) look_for_trouble();
    (void)mpi::receive_sized(control_, r, tag_data, all[static_cast<std::size_t>(r)]);
  }
  return all;
}

Bytes MpiRanks::Impl::share(Bytes of_rank_0) {
  if (is_root()) {
    look_for_trouble();
    for (int r = 1; r < size; ++r) {
      tell(r, FromRoot::data, {});
      mpi::send_sized(control_, r, tag_data, of_rank_0);
    }
    return of_rank_0;
  }
  (void)from_root();
  Bytes out;
  (void)mpi::receive_sized(control_, 0, tag_data, out);
  return out;
}

int MpiRanks::Impl::finish(int status, const std::string& trouble) {
  if (is_root()) {
    ByteWriter w;
    w.put(status);
    for (int r = 1; r < size; ++r) tell(r, FromRoot::stop, w.bytes);
    stopped_ = status;
    return status;
  }
  if (!trouble.empty())
    mpi::send(control_, 0, tag_trouble, std::as_bytes(std::span(trouble.data(), trouble.size())));
  while (!stopped_) try {
      (void)from_root();  // something that this process has no more use for
    } catch (const MpiStopped&) {
    }
  return *stopped_;
}

// --- all ranks but 0 -----------------------------------------------------------------------------

void MpiRanks::Impl::tell_root(ToRoot kind, std::span<const std::byte> payload) {
  mpi::send(control_, 0, tag_to_root, message(static_cast<int>(kind), payload));
}

MpiRanks::Impl::Message MpiRanks::Impl::from_root() {
  if (stopped_) throw MpiStopped{*stopped_};
  mpi::Pause pause;
  std::optional<MPI_Status> found;
  while (!(found = probe(control_, 0, tag_from_root))) pause();
  Bytes bytes = receive_found(control_, *found);
  const auto kind = static_cast<FromRoot>(bytes.at(0));
  bytes.erase(bytes.begin());
  if (kind == FromRoot::stop) {
    stopped_ = ByteReader(bytes).get<int>();
    throw MpiStopped{*stopped_};
  }
  return {kind, std::move(bytes)};
}

// --- rank 0 --------------------------------------------------------------------------------------

void MpiRanks::Impl::tell(int to, FromRoot kind, std::span<const std::byte> payload) {
  mpi::send(control_, to, tag_from_root, message(static_cast<int>(kind), payload));
}

void MpiRanks::Impl::let_go(const std::vector<int>& ranks) {
  ByteWriter met;
  met.put(board_->met_with());
  for (const int r : ranks)
    if (r == 0)
      go_ = true;
    else
      tell(r, FromRoot::go, met.bytes);
}

void MpiRanks::Impl::heard(int from, ToRoot kind, std::span<const std::byte> payload) {
  if (kind == ToRoot::call) {
    ByteReader r(payload);
    let_go(board_->call(from, detail::get_call(r)));
  } else {
    failures_[static_cast<std::size_t>(from)].assign(payload.begin(), payload.end());
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
bool MpiRanks::Impl::listen() {
  const std::optional<MPI_Status> found = probe(control_, MPI_ANY_SOURCE, tag_to_root);
  if (!found) {
    look_for_trouble();
    return false;
  }
  const Bytes bytes = receive_found(control_, *found);
  heard(found->MPI_SOURCE, static_cast<ToRoot>(bytes.at(0)), std::span(bytes).subspan(1));
  return true;
}

/// @throws RemoteError where another rank's program has failed outside of its function
void MpiRanks::Impl::look_for_trouble() {
  const std::optional<MPI_Status> found = probe(control_, MPI_ANY_SOURCE, tag_trouble);
  if (!found) return;
  const Bytes bytes = receive_found(control_, *found);
  broken_ = true;
  throw RemoteError(found->MPI_SOURCE, "",
                    std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace tpsim
