// SPDX-License-Identifier: MIT
// Communicators with a fault, to stand between a layer and its world.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <tpsim/comm/communicator.hpp>

namespace tpsim::detail {

/// Passes everything on to another communicator.
class PassOn : public Communicator {
 public:
  explicit PassOn(Communicator& world) : world_(&world) {}
  [[nodiscard]] int rank() const override { return world_->rank(); }
  [[nodiscard]] int size() const override { return world_->size(); }
  [[nodiscard]] std::string_view group() const override { return world_->group(); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key, Site at) override {
    return world_->split(color, key, at);
  }

 protected:
  void run(const Call& call) override { forward_to(*world_, call); }
  Communicator* world_;
};

/// Performs every all_reduce `times` times: 0 leaves it out, 2 sums an already whole value again.
class RepeatedAllReduce final : public PassOn {
 public:
  RepeatedAllReduce(Communicator& world, int times) : PassOn(world), times_(times) {}

 protected:
  void run(const Call& call) override {
    if (call.op != CollectiveOp::all_reduce) return PassOn::run(call);
    if (times_ == 0) return call.out.ops->assign(call.in.tensor, call.out.tensor);
    Call next = call;
    for (int i = 0; i < times_; ++i) {
      forward_to(*world_, next);
      next.in = call.out;
    }
  }

 private:
  int times_;
};

/// Which ranks of a group meet, and in which order: color and key of a split.
using Regroup = std::pair<int, int> (*)(int rank, int size);
[[nodiscard]] inline std::pair<int, int> half_of_ranks(int rank, int size) {
  return {rank < (size + 1) / 2 ? 0 : 1, rank};
}
[[nodiscard]] inline std::pair<int, int> every_second_rank(int rank, int /*size*/) {
  return {rank % 2, rank};
}
[[nodiscard]] inline std::pair<int, int> reversed_ranks(int rank, int /*size*/) {
  return {0, -rank};
}

/// Performs one kind of collective in another group than the layer's.
class InOtherGroup final : public PassOn {
 public:
  InOtherGroup(Communicator& world, CollectiveOp op, Regroup regroup) : PassOn(world), op_(op) {
    const auto [color, key] = regroup(world.rank(), world.size());
    other_ = world.split(color, key);
  }

 protected:
  void run(const Call& call) override { forward_to(call.op == op_ ? *other_ : *world_, call); }

 private:
  CollectiveOp op_;
  std::unique_ptr<Communicator> other_;
};

class MaximumForSum final : public PassOn {
 public:
  using PassOn::PassOn;

 protected:
  void run(const Call& call) override {
    Call other = call;
    other.reduction = Reduction::max;
    PassOn::run(other);
  }
};

/// The last rank leaves its collectives out, repeats them, or comes to a barrier before them that
/// the others reach after them.
class OddLastRank final : public PassOn {
 public:
  enum class Does : std::uint8_t { skips, repeats, exchanges };
  OddLastRank(Communicator& world, Does does) : PassOn(world), does_(does) {}

 protected:
  void run(const Call& call) override {
    const bool odd = rank() + 1 == size() && size() > 1;
    if (odd && does_ == Does::skips) return;
    if (odd && does_ == Does::exchanges) world_->barrier(call.at);
    PassOn::run(call);
    if (odd && does_ == Does::repeats) PassOn::run(call);
    if (!odd && does_ == Does::exchanges) world_->barrier(call.at);
  }

 private:
  Does does_;
};

}  // namespace tpsim::detail
