// SPDX-License-Identifier: MIT
// cuBLASLt, loaded when the first Device is made. It is half a GiB: linked in the usual way, each
// start of the program would map and relocate it, 0.14 s also for commands that use no GPU.
#pragma once

#include <cublasLt.h>

#include "sim/cuda/check.hpp"

namespace tpsim::cuda {

/// Its functions, under their own names.
struct CublasLt {
#define TPSIM_CUBLASLT(X)             \
  X(cublasLtCreate)                   \
  X(cublasLtDestroy)                  \
  X(cublasLtGetVersion)               \
  X(cublasLtGetStatusName)            \
  X(cublasLtGetStatusString)          \
  X(cublasLtMatmul)                   \
  X(cublasLtMatmulAlgoGetHeuristic)   \
  X(cublasLtMatmulDescCreate)         \
  X(cublasLtMatmulDescDestroy)        \
  X(cublasLtMatmulDescSetAttribute)   \
  X(cublasLtMatrixLayoutCreate)       \
  X(cublasLtMatrixLayoutDestroy)      \
  X(cublasLtMatrixLayoutSetAttribute) \
  X(cublasLtMatmulPreferenceCreate)   \
  X(cublasLtMatmulPreferenceDestroy)  \
  X(cublasLtMatmulPreferenceSetAttribute)
#define TPSIM_MEMBER(name) decltype(&::name) name = nullptr;
  TPSIM_CUBLASLT(TPSIM_MEMBER)
#undef TPSIM_MEMBER
};

/// @throws Error when the library is not there, or is another major version
[[nodiscard]] const CublasLt& cublas_lt();

inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const CublasLt& lt = cublas_lt();
  fail(call,
       std::string(lt.cublasLtGetStatusName(status)) + ", " + lt.cublasLtGetStatusString(status),
       file, line);
}

}  // namespace tpsim::cuda
