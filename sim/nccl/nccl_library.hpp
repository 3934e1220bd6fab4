// SPDX-License-Identifier: MIT
// NCCL, loaded when the first group is made: 0.2 GiB that other commands need not map.
#pragma once

#include <nccl.h>

#include "sim/cuda/check.hpp"

namespace tpsim::nccl {

/// Its functions, under their own names.
struct Library {
#define TPSIM_NCCL(X)       \
  X(ncclGetVersion)         \
  X(ncclGetUniqueId)        \
  X(ncclCommInitRankConfig) \
  X(ncclCommSplit)          \
  X(ncclCommUserRank)       \
  X(ncclCommCount)          \
  X(ncclCommFinalize)       \
  X(ncclCommDestroy)        \
  X(ncclCommAbort)          \
  X(ncclCommGetAsyncError)  \
  X(ncclGetErrorString)     \
  X(ncclGetLastError)       \
  X(ncclGroupStart)         \
  X(ncclGroupEnd)           \
  X(ncclAllGather)          \
  X(ncclAllReduce)          \
  X(ncclReduceScatter)      \
  X(ncclBroadcast)          \
  X(ncclSend)               \
  X(ncclRecv)
#define TPSIM_MEMBER(name) decltype(&::name) name = nullptr;
  TPSIM_NCCL(TPSIM_MEMBER)
#undef TPSIM_MEMBER
};

/// @throws cuda::Error when the library is not there, or is another major version
[[nodiscard]] const Library& library();

}  // namespace tpsim::nccl
