// SPDX-License-Identifier: MIT
#include "sim/cuda/cublas_lt.hpp"

#include "sim/cuda/shared_library.hpp"

namespace tpsim::cuda {

const CublasLt& cublas_lt() {
  static const CublasLt functions = [] {
    void* const library = open_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
    CublasLt out;
#define TPSIM_LOAD(name) load(library, #name, out.name);
    TPSIM_CUBLASLT(TPSIM_LOAD)
#undef TPSIM_LOAD
    return out;
  }();
  return functions;
}

}  // namespace tpsim::cuda
