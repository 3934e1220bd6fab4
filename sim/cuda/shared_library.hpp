// SPDX-License-Identifier: MIT
// Libraries that are opened when they are first needed.
#pragma once

#include <dlfcn.h>

#include <string>

#include "sim/cuda/check.hpp"

namespace tpsim::cuda {

/// "libnccl.so.2", as the linker finds it, else in the toolkit's folder, which a system's linker
/// may not know. @throws Error with the first reason
[[nodiscard]] inline void* open_library(const std::string& name) {
  std::string why;
  for (const std::string& path : {name, std::string(TPSIM_CUDA_LIBRARIES "/") + name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (why.empty()) why = dlerror();
  }
  fail("dlopen", why, __FILE__, __LINE__);
}

/// Sets a pointer to the library's function. @throws Error when it has none of that name
template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) fail("dlsym", std::string(name) + " is not there", __FILE__, __LINE__);
}

}  // namespace tpsim::cuda
