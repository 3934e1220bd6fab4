// SPDX-License-Identifier: MIT
// Communicators with a fault, to stand between a layer and its world.
#pragma once

#include <algorithm>

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

/// Performs every all_reduce in the first or the second half of the ranks alone.
class HalfGroupAllReduce final : public PassOn {
 public:
  explicit HalfGroupAllReduce(Communicator& world)
      : PassOn(world),
        half_(world.split(world.rank() < (world.size() + 1) / 2 ? 0 : 1, world.rank())) {}

 protected:
  void run(const Call& call) override {
    forward_to(call.op == CollectiveOp::all_reduce ? *half_ : *world_, call);
  }

 private:
  std::unique_ptr<Communicator> half_;
};

}  // namespace tpsim::detail
