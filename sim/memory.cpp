// SPDX-License-Identifier: MIT
#include "sim/memory.hpp"

#include <unistd.h>

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

void require_memory(double bytes, const std::string& who, const std::string& for_what,
                    const std::string& hint) {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= memory) return;
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  throw UsageError(fmt::format("{} about {:.0f} GiB{}, this machine has {:.0f} GiB", who,
                               bytes / gib, for_what.empty() ? "" : " " + for_what, memory / gib),
                   hint);
}

}  // namespace tpsim::cli
