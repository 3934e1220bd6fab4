// SPDX-License-Identifier: MIT
// Every return code of CUDA: an error names the call, the code and the place.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::cuda {

[[noreturn]] inline void fail(const char* call, const std::string& why, const char* file,
                              int line) {
  throw Error(std::string(call) + " failed: " + why + " (" + file + ":" + std::to_string(line) +
              ")");
}
inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  fail(call, std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status), file, line);
}

}  // namespace tpsim::cuda

#define TPSIM_CUDA(call) ::tpsim::cuda::check((call), #call, __FILE__, __LINE__)
