// SPDX-License-Identifier: MIT
#include "sim/nccl/nccl_library.hpp"

#include "sim/cuda/shared_library.hpp"

namespace tpsim::nccl {

const Library& library() {
  static const Library functions = [] {
    void* const opened = cuda::open_library("libnccl.so." + std::to_string(NCCL_MAJOR));
    Library out;
#define TPSIM_LOAD(name) cuda::load(opened, #name, out.name);
    TPSIM_NCCL(TPSIM_LOAD)
#undef TPSIM_LOAD
    return out;
  }();
  return functions;
}

}  // namespace tpsim::nccl
