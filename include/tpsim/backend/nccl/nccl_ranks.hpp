// SPDX-License-Identifier: MIT
// The ranks of a tensor-parallel group as processes with a GPU each, whose tensors NCCL moves.
#pragma once

#include <tpsim/backend/cuda/cuda_ops.hpp>
#include <tpsim/comm/process/meeting.hpp>
#include <tpsim/comm/process/process_ranks.hpp>

namespace tpsim {

struct NcclOptions {
  /// Every collective is told to rank 0 before it happens, as MpiOptions::debug has it, but over
  /// TCP: calls that do not match, a rank that returns early or throws are findings on all ranks,
  /// and there is a trace. Without it the time limit, or NCCL's own error, ends such calls, and a
  /// rank that throws ends its process.
  bool debug = true;
  /// NCCL's own collectives for tensors of the CUDA backend: sums in its order, rounded to the
  /// tensors' type at every hop. Without it NCCL moves the ranks' tensors, and each rank sums,
  /// joins and cuts them as virtual ranks do: the same bits, at the price of more bytes.
  bool native = false;
};

/// One process a rank; they find each other at a file, whoever has started them. Tensors of
/// CudaBackend go from device to device, those of other backends by TensorOps::pack() through
/// device memory.
///
/// A process that dies is noticed by the others, and so is one that calls what the others do not:
/// after the time limit NCCL's groups are aborted and every rank throws.
class NcclRanks final : public ProcessRanks {
 public:
  /// @param device  the one of the backends whose tensors are given; on another GPU than those of
  ///   the other ranks (NCCL_HOSTID can tell NCCL that they are on other machines)
  /// @throws MeetingError; cuda::Error as nccl::Group
  NcclRanks(cuda::Device device, const Meeting& meeting, NcclOptions options = {});
};

using NcclWorld = WorldOf<NcclRanks>;

}  // namespace tpsim
