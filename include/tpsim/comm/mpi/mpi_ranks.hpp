// SPDX-License-Identifier: MIT
// The ranks of a tensor-parallel group as processes under mpirun. The library tpsim::mpi has what
// is declared here; nothing of MPI's own headers is needed to use it.
#pragma once

#include <stdexcept>

#include <tpsim/comm/process/process_ranks.hpp>

namespace tpsim {

struct MpiOptions {
  /// Every collective is told to rank 0 before it happens: calls that do not match, a rank that
  /// returns early or throws are findings on all ranks, and there is a trace. One message each way
  /// for a collective, and a group without rank 0 waits until rank 0 waits, too. Without it such
  /// calls hang or do what MPI does, and a rank that throws ends the job (MPI_Abort).
  bool debug = true;
  /// Sums by MPI's own reductions, in any order, where the tensor is plain f32 or f64; data that is
  /// only moved by MPI's collectives. Everything else stays in rank order: sums that round to bf16
  /// or f16 at every hop (their order is part of the result), maxima (MPI_MAX of a NaN is not
  /// defined), sums in a finite field, and messages of 2 GiB and more.
  bool fast = false;
};

/// A call of MPI itself failed.
class MpiError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The processes that mpirun has started. Tensors cross by TensorOps::pack(): rank 0 of the group,
/// or the root, computes in rank order.
///
/// A process that dies (a signal, abort(), exit() in the middle) ends the job: mpirun sees it, or
/// MPI_Abort is called.
class MpiRanks final : public ProcessRanks {
 public:
  /// Starts MPI if nobody has; it is finalized when the program exits. @throws MpiError
  explicit MpiRanks(MpiOptions options = {});
};

using MpiWorld = WorldOf<MpiRanks>;

}  // namespace tpsim
