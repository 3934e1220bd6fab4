// SPDX-License-Identifier: MIT
#include "sim/memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "sim/request.hpp"

namespace tpsim::cli {

double activation_bytes(const Subject& subject, Index tokens, int tp, double inside) {
  double output = 0;
  for (const DeclaredOutput& o : subject.outputs)
    for (const Runs& columns : o.columns) output += static_cast<double>(columns.size());
  return 8 * static_cast<double>(tokens) *
         (static_cast<double>(subject.input_width) * (tp + 1) + output + inside);
}

double columns_inside(const QkvShape& qkv, Index intermediate) {
  const double heads = static_cast<double>(qkv.heads) * static_cast<double>(qkv.head_dim);
  return 8 * heads + 6 * static_cast<double>(intermediate);
}

double memory_limit() {
  double limit =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  // As a container sees its own: cgroup v2, and v1. "max", or no file: none.
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (double bytes = 0; std::ifstream(file) >> bytes && bytes > 0) limit = std::min(limit, bytes);
  const char* const given = std::getenv("TPSIM_MEMORY_MIB");
  if (given == nullptr || *given == '\0') return limit;
  char* end = nullptr;
  const double mib = std::strtod(given, &end);
  if (*end != '\0' || !std::isfinite(mib) || mib <= 0)
    throw UsageError(fmt::format("TPSIM_MEMORY_MIB is '{}', wanted a number of MiB above 0", given),
                     "unset it: the machine's memory counts then");
  return std::min(limit, mib * 1024 * 1024);
}

void require_memory(double bytes, const std::string& who, const std::string& for_what,
                    const std::string& hint) {
  const double memory = memory_limit();
  if (bytes <= memory) return;
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  throw UsageError(fmt::format("{} about {:.3g} GiB{}, and {:.3g} GiB may be used", who,
                               bytes / gib, for_what.empty() ? "" : " " + for_what, memory / gib),
                   hint);
}

}  // namespace tpsim::cli
