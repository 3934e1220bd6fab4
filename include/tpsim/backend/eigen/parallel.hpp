// SPDX-License-Identifier: MIT
// A loop over independent pieces of work, with OpenMP where the compiler offers it.
#pragma once

#include <exception>

#include <tpsim/core/shape.hpp>

namespace tpsim::eigen {

/// f(0), ..., f(n - 1) in any order, on all threads when `worth` says that it pays. The pieces
/// must be independent: their number never depends on the threads, so results do not either.
/// The first exception is rethrown.
template <class F>
void parallel_for(Index n, bool worth, const F& f) {
#ifdef _OPENMP
  if (worth && n > 1) {
    std::exception_ptr first;
#pragma omp parallel for schedule(dynamic)
    for (Index i = 0; i < n; ++i) {
      try {
        f(i);
      } catch (...) {
#pragma omp critical(tpsim_parallel_for)
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
    return;
  }
#endif
  static_cast<void>(worth);
  for (Index i = 0; i < n; ++i) f(i);
}

}  // namespace tpsim::eigen
