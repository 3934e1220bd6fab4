// SPDX-License-Identifier: MIT
#include "sim/mpi/mpi_world.hpp"

namespace tpsim::mpi {
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

void MpiCommunicator::run(const Call& call) {
  world_->require_current(name(call.op).data(), job_);
  if (!world_->may_run()) return;
  const detail::Arrival mine = detail::make_arrival(call, rank_);
  if (size_ > 1)
    for (const Buffer& b : {call.in, call.out}) require_leaves_process(call.at, b);
  if (world_->options.debug) (void)world_->agree(detail::logged(mine, name_, rank_));
  if (!Transport(*group_, world_->tag(), world_->options.fast)(mine)) world_->stop();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key, Site at) {
  world_->require_current("split", job_);
  if (!world_->may_run()) return nullptr;
  if (world_->options.debug) {
    detail::Arrival mine;
    mine.call = {CollectiveOp::split, Reduction::sum, -1, -1, {}, {}, at};
    mine.color = color, mine.key = key;
    (void)world_->agree(detail::logged(mine, name_, rank_));
  }
  MpiGroup part;
  part.name = detail::part_name(name_, ++group_->splits, color);
  TPSIM_MPI(MPI_Comm_split(group_->comm, color < 0 ? MPI_UNDEFINED : color, key, &part.comm));
  if (part.comm == MPI_COMM_NULL) return nullptr;
  TPSIM_MPI(MPI_Comm_rank(part.comm, &part.rank));
  TPSIM_MPI(MPI_Comm_size(part.comm, &part.size));
  return std::make_unique<MpiCommunicator>(*world_, world_->keep(std::move(part)));
}

Met MpiCommunicator::meet(const Met& mine) {
  world_->require_current("meet", job_);
  if (!world_->options.debug)
    throw std::logic_error("meet: ranks without debug mode do not know where the others are");
  detail::LoggedCall call;
  call.meeting = true, call.said = mine;
  return world_->agree(call);
}

}  // namespace tpsim::mpi
