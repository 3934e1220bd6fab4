// SPDX-License-Identifier: MIT
// Which rank this process is, as whoever started it has put it into the environment.
#pragma once

#include <tpsim/comm/process/meeting.hpp>

namespace tpsim::cli {

struct Launched {
  Meeting meeting;
  int local_rank = 0;  ///< among the processes of its machine
};

/// TPSIM_RANK, TPSIM_WORLD_SIZE and TPSIM_LOCAL_RANK, or what mpirun (OMPI_COMM_WORLD_*), srun
/// (SLURM_*) or torchrun (RANK, WORLD_SIZE, LOCAL_RANK) set; TPSIM_NCCL_FILE, and seconds in
/// TPSIM_NCCL_TIME_LIMIT. A process that nobody started so is the only one.
/// @throws UsageError naming the variable that is wrong or missing
[[nodiscard]] Launched read_launched();
/// Of mpirun, srun and torchrun: which process of its machine this is, 0 where nobody says so.
/// @throws UsageError as read_launched()
[[nodiscard]] int launched_local_rank();

}  // namespace tpsim::cli
