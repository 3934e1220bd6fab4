// SPDX-License-Identifier: MIT
// A group of processes that exchange device memory by NCCL, behind plain C++17: no CUDA or NCCL
// header. sim/nccl/nccl_group.cpp implements it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::nccl {

using cuda::Size;

/// A call of a group has failed, here or on another rank.
class Error : public cuda::Error {
 public:
  using cuda::Error::Error;
};

/// Where a rank joins a group.
struct Seat {
  std::vector<std::byte> id;  ///< what rank 0 has of Group::new_id()
  int rank = 0, size = 1;
  double time_limit_s = 60;  ///< of the meeting and of each call; then the group is aborted
  /// Asked again and again while the rank waits; what it throws, the call throws, and the group is
  /// aborted.
  std::function<void()> watch = [] {};
};

/// One rank's end of a group. Every call is made by all ranks, in the same order. It returns when
/// the result is there, or throws Error: NCCL's own error, one that comes from another rank,
/// or that the time limit is over; the group is aborted then and refuses every further call.
/// Pointers are memory of the rank's Device. `what` says in errors what was waited for.
class Group {
 public:
  struct State;

  /// Is this the implementation by NCCL (or a test's), and not the one that refuses everything?
  [[nodiscard]] static bool is_built();
  /// "NCCL 2.28.9". @throws cuda::Error where the library is not there
  [[nodiscard]] static std::string version();
  /// Names a meeting of processes; for rank 0, which tells the others.
  [[nodiscard]] static std::vector<std::byte> new_id();
  /// Waits for all ranks.
  [[nodiscard]] static Group join(cuda::Device device, const Seat& seat);

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// out := the ranks' `bytes` bytes, one after the other. in may be its place in out.
  void all_gather(const void* in, void* out, Size bytes, const std::string& what);
  /// By NCCL's own reduction, in an order of its choice. in may be out.
  void all_reduce(const void* in, void* out, Size count, cuda::Type type, cuda::ReduceOp op,
                  const std::string& what);
  /// out := part `rank` of the reduced parts, each of `count` elements.
  void reduce_scatter(const void* in, void* out, Size count, cuda::Type type, cuda::ReduceOp op,
                      const std::string& what);
  void broadcast(const void* in, void* out, Size bytes, int root, const std::string& what);
  /// As all_gather, on `root` alone; out may be null elsewhere.
  void gather(const void* in, void* out, Size bytes, int root, const std::string& what);
  /// in and out: size() blocks of `bytes`; block j of rank i becomes block i of rank j.
  void all_to_all(const void* in, void* out, Size bytes, const std::string& what);
  /// The ranks with one color, ordered by (key, rank); of a negative color none (is_none()).
  [[nodiscard]] Group split(int color, int key);
  /// Leaves without the others, whose calls fail or run into their time limit.
  void abandon();
  [[nodiscard]] bool is_none() const { return state_ == nullptr; }

 private:
  explicit Group(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace tpsim::nccl
