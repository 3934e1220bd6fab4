// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tpsim::cli {

/// Keeps the memory of a layer for the next one. By default the C library gives large blocks back
/// to the kernel, which clears them again for the next layer: a third of the time of checking a
/// checkpoint.
inline void reuse_memory() {
#ifdef __GLIBC__
  constexpr int MiB = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 256 * MiB);
  mallopt(M_TRIM_THRESHOLD, 512 * MiB);
#endif
}

}  // namespace tpsim::cli
