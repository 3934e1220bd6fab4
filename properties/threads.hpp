// SPDX-License-Identifier: MIT
// How many OpenMP threads there are, for the length of a scope.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

namespace tpsim::properties {

/// Sets the number of OpenMP threads for the length of a scope.
class Threads {
 public:
#ifdef _OPENMP
  explicit Threads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~Threads() { omp_set_num_threads(before_); }
#else
  explicit Threads(int /*n*/) {}
  ~Threads() = default;
#endif
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

#ifdef _OPENMP
 private:
  int before_;
#endif
};

}  // namespace tpsim::properties
