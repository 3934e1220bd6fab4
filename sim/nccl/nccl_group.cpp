// SPDX-License-Identifier: MIT
// nccl::Group by NCCL. Its calls do not block: what is queued is polled until it is done, has
// failed, or the time limit is over.
#include <tpsim/backend/nccl/nccl_group.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "sim/cuda/device_state.hpp"
#include "sim/nccl/nccl_library.hpp"

namespace tpsim::nccl {

struct Group::State {
  cuda::Device device;
  ncclComm_t comm = nullptr;
  int rank = 0, size = 1;
  double time_limit_s = 60;
  std::function<void()> watch;
  std::string aborted;  ///< why, when it was

  explicit State(cuda::Device d) : device(std::move(d)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
};

namespace {

using State = Group::State;
using Clock = std::chrono::steady_clock;

ncclDataType_t data_type(cuda::Type t) {
  return t == cuda::Type::f32 ? ncclFloat32 : t == cuda::Type::bf16 ? ncclBfloat16 : ncclFloat16;
}
ncclRedOp_t reduction(cuda::ReduceOp op) { return op == cuda::ReduceOp::sum ? ncclSum : ncclMax; }

std::string who(const State& s) {
  return "rank " + std::to_string(s.rank) + " of " + std::to_string(s.size);
}

/// Gives the group up, so that nobody waits for it.
void give_up(State& s, const std::string& why) {
  s.aborted = why;
  if (s.comm != nullptr) {
    (void)library().ncclCommAbort(s.comm);
    s.comm = nullptr;
  }
}
[[noreturn]] void abort(State& s, const std::string& why) {
  give_up(s, why);
  throw Error(why);
}

/// What the rank's watch throws ends the wait, too.
void watch(State& s, const std::string& what) {
  try {
    if (s.watch) s.watch();
  } catch (const std::exception& e) {
    give_up(s, what + " was given up on " + who(s) + ": " + e.what());
    throw;
  }
}

/// Until `done` says so, NCCL says that something failed, or time is over.
void poll(State& s, const std::string& what, const std::function<bool()>& done) {
  const auto start = Clock::now();
  for (int round = 0;; ++round) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = library().ncclCommGetAsyncError(s.comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state != ncclSuccess && state != ncclInProgress)
      abort(s, what + " failed on " + who(s) + ": " + library().ncclGetErrorString(state) + ", " +
                   library().ncclGetLastError(s.comm));
    if (state == ncclSuccess && done()) return;
    if (std::chrono::duration<double>(Clock::now() - start).count() > s.time_limit_s)
      abort(s, what + " did not end within " + fmt::format("{} s", s.time_limit_s) + " on " +
                   who(s) +
                   ": another rank has ended, or calls something else; the group was aborted");
    watch(s, what);
    if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void check(State& s, ncclResult_t result, const char* call, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  abort(s, std::string(call) + " failed for " + what + " on " + who(s) + ": " +
               library().ncclGetErrorString(result) + ", " + library().ncclGetLastError(s.comm));
}

/// Queues by `queue(stream)`, waits for NCCL and then for the stream.
template <class F>
void run(State& s, const std::string& what, const F& queue) {
  if (s.comm == nullptr) throw Error(what + " in a group that was aborted: " + s.aborted);
  const cudaStream_t stream = s.device.state().use();
  queue(stream);
  poll(s, what, [&] {
    const cudaError_t ready = cudaStreamQuery(stream);
    if (ready != cudaErrorNotReady) TPSIM_CUDA(ready);
    return ready == cudaSuccess;
  });
}

/// Messages of one length that NCCL starts together. An open group of calls would swallow every
/// later call of this thread: it is ended whatever came out.
class Messages {
 public:
  Messages(State& s, Size bytes, cudaStream_t stream)
      : s_(s), bytes_(static_cast<std::size_t>(bytes)), stream_(stream) {
    note(library().ncclGroupStart(), "ncclGroupStart");
  }
  void send(const void* from, int to) {
    note(library().ncclSend(from, bytes_, ncclInt8, to, s_.comm, stream_), "ncclSend");
  }
  void receive(void* to, int from) {
    note(library().ncclRecv(to, bytes_, ncclInt8, from, s_.comm, stream_), "ncclRecv");
  }
  void end(const std::string& what) {
    note(library().ncclGroupEnd(), "ncclGroupEnd");
    check(s_, first_, call_, what);
  }

 private:
  void note(ncclResult_t result, const char* call) {
    if (first_ == ncclSuccess || first_ == ncclInProgress) first_ = result, call_ = call;
  }
  State& s_;
  std::size_t bytes_;
  cudaStream_t stream_;
  ncclResult_t first_ = ncclSuccess;
  const char* call_ = "";
};

/// Everybody is done with the group: what is queued ends first.
void leave(State& s) {
  s.watch = nullptr;  // the others may have left
  s.time_limit_s = std::min(s.time_limit_s, 5.0);
  check(s, library().ncclCommFinalize(s.comm), "ncclCommFinalize", "leaving the group");
  poll(s, "leaving the group", [] { return true; });
  const ncclComm_t done = std::exchange(s.comm, nullptr);
  check(s, library().ncclCommDestroy(done), "ncclCommDestroy", "leaving the group");
}

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

const unsigned char* block(const void* memory, Size index, Size bytes) {
  return static_cast<const unsigned char*>(memory) + index * bytes;
}
unsigned char* block(void* memory, Size index, Size bytes) {
  return static_cast<unsigned char*>(memory) + index * bytes;
}

}  // namespace

Group::State::~State() {
  if (comm == nullptr) return;
  try {
    leave(*this);
  } catch (const std::exception&) {  // it was aborted, which is all that can be done here
  }
}

std::string Group::version() {
  int v = 0;
  if (const ncclResult_t result = library().ncclGetVersion(&v); result != ncclSuccess)
    cuda::fail("ncclGetVersion", library().ncclGetErrorString(result), __FILE__, __LINE__);
  return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

bool Group::is_built() { return true; }

std::vector<std::byte> Group::new_id() {
  ncclUniqueId id{};
  if (const ncclResult_t result = library().ncclGetUniqueId(&id); result != ncclSuccess)
    cuda::fail("ncclGetUniqueId", library().ncclGetErrorString(result), __FILE__, __LINE__);
  std::vector<std::byte> bytes(sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

Group Group::join(cuda::Device device, const Seat& seat) {
  ncclUniqueId id{};
  if (seat.id.size() != sizeof id)
    throw cuda::Error("NCCL's id has " + std::to_string(sizeof id) + " bytes, not " +
                      std::to_string(seat.id.size()));
  std::memcpy(&id, seat.id.data(), sizeof id);
  auto s = std::make_shared<State>(std::move(device));
  s->rank = seat.rank, s->size = seat.size;
  s->time_limit_s = seat.time_limit_s, s->watch = seat.watch;
  s->device.state().use();
  ncclConfig_t config = not_blocking();
  const std::string what = "the meeting of the ranks";
  check(*s, library().ncclCommInitRankConfig(&s->comm, seat.size, id, seat.rank, &config),
        "ncclCommInitRankConfig", what);
  poll(*s, what, [] { return true; });
  return Group(std::move(s));
}

int Group::rank() const { return state_->rank; }
int Group::size() const { return state_->size; }

void Group::all_gather(const void* in, void* out, Size bytes, const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    check(*state_,
          library().ncclAllGather(in, out, static_cast<std::size_t>(bytes), ncclInt8, state_->comm,
                                  stream),
          "ncclAllGather", what);
  });
}
void Group::all_reduce(const void* in, void* out, Size count, cuda::Type type, cuda::ReduceOp op,
                       const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    check(*state_,
          library().ncclAllReduce(in, out, static_cast<std::size_t>(count), data_type(type),
                                  reduction(op), state_->comm, stream),
          "ncclAllReduce", what);
  });
}
void Group::reduce_scatter(const void* in, void* out, Size count, cuda::Type type,
                           cuda::ReduceOp op, const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    check(*state_,
          library().ncclReduceScatter(in, out, static_cast<std::size_t>(count), data_type(type),
                                      reduction(op), state_->comm, stream),
          "ncclReduceScatter", what);
  });
}
void Group::broadcast(const void* in, void* out, Size bytes, int root, const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    check(*state_,
          library().ncclBroadcast(in, out, static_cast<std::size_t>(bytes), ncclInt8, root,
                                  state_->comm, stream),
          "ncclBroadcast", what);
  });
}
void Group::gather(const void* in, void* out, Size bytes, int root, const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    Messages messages(*state_, bytes, stream);
    messages.send(in, root);
    for (int r = 0; rank() == root && r < size(); ++r) messages.receive(block(out, r, bytes), r);
    messages.end(what);
  });
}
void Group::all_to_all(const void* in, void* out, Size bytes, const std::string& what) {
  run(*state_, what, [&](cudaStream_t stream) {
    Messages messages(*state_, bytes, stream);
    for (int r = 0; r < size(); ++r) {
      messages.send(block(in, r, bytes), r);
      messages.receive(block(out, r, bytes), r);
    }
    messages.end(what);
  });
}

void Group::abandon() { give_up(*state_, "this rank has left"); }

Group Group::split(int color, int key) {
  auto part = std::make_shared<State>(state_->device);
  part->time_limit_s = state_->time_limit_s, part->watch = state_->watch;
  run(*state_, "split", [&](cudaStream_t) {
    ncclConfig_t config = not_blocking();
    check(*state_,
          library().ncclCommSplit(state_->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                                  &part->comm, &config),
          "ncclCommSplit", "split");
  });
  if (part->comm == nullptr) return Group(nullptr);
  poll(*part, "split", [] { return true; });
  check(*part, library().ncclCommUserRank(part->comm, &part->rank), "ncclCommUserRank", "split");
  check(*part, library().ncclCommCount(part->comm, &part->size), "ncclCommCount", "split");
  return Group(std::move(part));
}

}  // namespace tpsim::nccl
