// SPDX-License-Identifier: MIT
// Libraries that are opened when they are first needed.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "sim/cuda/check.hpp"
#include "sim/cuda/library_places.hpp"

namespace tpsim::cuda {

/// "libnccl.so.2", as the linker finds it ($LD_LIBRARY_PATH and the system's folders), else the
/// first of library_places that opens. @throws Error with the linker's reasons
[[nodiscard]] inline void* open_library(const std::string& name) {
  std::vector<std::string> places = library_places(name, TPSIM_CUDA_LIBRARIES);
  places.insert(places.begin(), name);
  std::string why;
  for (const std::string& path : places) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  if (places.size() == 1)
    why += ", nor below $CUDA_HOME, in /usr/local/cuda or among the packages of a Python in $PATH";
  fail("dlopen", why, __FILE__, __LINE__);
}

/// Sets a pointer to the library's function. @throws Error when it has none of that name
template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) fail("dlsym", std::string(name) + " is not there", __FILE__, __LINE__);
}

}  // namespace tpsim::cuda
