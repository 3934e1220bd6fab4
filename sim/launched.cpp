// SPDX-License-Identifier: MIT
#include "sim/launched.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "sim/request.hpp"

namespace tpsim::cli {
namespace {

/// Variables of one launcher.
struct Launcher {
  const char *rank, *size, *local_rank;
};
constexpr std::array<Launcher, 4> launchers{{
    {"TPSIM_RANK", "TPSIM_WORLD_SIZE", "TPSIM_LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
}};
constexpr int most_processes = 4096;
constexpr const char* how_to_launch =
    "tpsim-nccl-run -n 4 tpsim --comm nccl ... sets what is needed";

std::optional<int> variable(const char* name, int least, int most) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end == '\0' && value >= least && value <= most) return static_cast<int>(value);
  throw UsageError(
      fmt::format("{} is '{}', wanted a whole number from {} to {}", name, text, least, most),
      how_to_launch);
}

}  // namespace

Launched read_launched() {
  Launched out;
  for (const Launcher& l : launchers) {
    const std::optional<int> size = variable(l.size, 1, most_processes);
    const std::optional<int> rank = variable(l.rank, 0, (size ? *size : most_processes) - 1);
    if (!size && !rank) continue;
    if (!size || !rank)
      throw UsageError(
          fmt::format("{} is set and {} is not", size ? l.size : l.rank, size ? l.rank : l.size),
          how_to_launch);
    out.meeting.rank = *rank, out.meeting.size = *size;
    out.local_rank = variable(l.local_rank, 0, most_processes - 1).value_or(*rank);
    break;
  }
  if (const char* limit = std::getenv("TPSIM_NCCL_TIME_LIMIT");
      limit != nullptr && *limit != '\0') {
    char* end = nullptr;
    const double seconds = std::strtod(limit, &end);
    if (end == limit || *end != '\0' || !std::isfinite(seconds) || seconds <= 0 || seconds > 86400)
      throw UsageError(
          fmt::format("TPSIM_NCCL_TIME_LIMIT is '{}', wanted seconds, above 0 and up to 86400",
                      limit),
          how_to_launch);
    out.meeting.time_limit_s = seconds;
  }
  if (const char* file = std::getenv("TPSIM_NCCL_FILE"); file != nullptr) out.meeting.file = file;
  if (out.meeting.size > 1 && out.meeting.file.empty())
    throw UsageError("TPSIM_NCCL_FILE is not set: the processes meet at that file",
                     "give all of them one new name in a folder that they share, or use "
                     "tpsim-nccl-run");
  return out;
}

int launched_local_rank() {
  for (const Launcher& l : launchers)
    if (const auto rank = variable(l.local_rank, 0, most_processes - 1)) return *rank;
  return 0;
}

}  // namespace tpsim::cli
