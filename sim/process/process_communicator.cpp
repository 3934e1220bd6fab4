// SPDX-License-Identifier: MIT
#include "sim/process/process_world.hpp"

namespace tpsim::process {
namespace {

/// @throws std::logic_error naming the tensors
void require_leaves_process(const Communicator::Site& at, const Buffer& b) {
  if (b.tensor == nullptr || b.ops->leaves_process()) return;
  throw std::logic_error("tensors of " + std::string(b.ops->kind()) +
                         " cannot leave their process: this backend runs on virtual ranks alone, "
                         "at " +
                         where(at));
}

}  // namespace

void ProcessCommunicator::run(const Call& call) {
  world_->require_current(name(call.op).data(), job_);
  if (!world_->may_run()) return;
  const detail::Arrival mine = detail::make_arrival(call, rank_);
  if (size_ > 1)
    for (const Buffer& b : {call.in, call.out}) require_leaves_process(call.at, b);
  if (world_->debug) (void)world_->agree(detail::logged(mine, name_, rank_));
  if (!group_->move(mine, job_)) world_->stop();
}

std::unique_ptr<Communicator> ProcessCommunicator::split(int color, int key, Site at) {
  world_->require_current("split", job_);
  if (!world_->may_run()) return nullptr;
  if (world_->debug) {
    detail::Arrival mine;
    mine.call = {CollectiveOp::split, Reduction::sum, -1, -1, {}, {}, at};
    mine.color = color, mine.key = key;
    (void)world_->agree(detail::logged(mine, name_, rank_));
  }
  const std::string part_name = detail::part_name(name_, ++group_->splits, color);
  std::unique_ptr<Group> part = group_->split(color, key);
  if (part == nullptr) return nullptr;
  part->name = part_name;
  return std::make_unique<ProcessCommunicator>(*world_, world_->keep(std::move(part)));
}

Met ProcessCommunicator::meet(const Met& mine) {
  world_->require_current("meet", job_);
  if (!world_->debug)
    throw std::logic_error("meet: ranks without debug mode do not know where the others are");
  detail::LoggedCall call;
  call.meeting = true, call.said = mine;
  return world_->agree(call);
}

}  // namespace tpsim::process
