// SPDX-License-Identifier: MIT
// Where an element of a rank's result belongs: part, head, column.
#pragma once

#include <string>

#include <tpsim/verify/report.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// Element [token, column] of what `rank` returns.
[[nodiscard]] inline OutputPlace place_of(const Subject& subject, std::size_t rank, Index token,
                                          Index column) {
  OutputPlace place{static_cast<int>(rank), "output", {}, token, column};
  for (std::size_t k = 0; k < subject.outputs.size(); ++k) {
    const Runs& columns = subject.outputs[k].columns[rank];
    if (place.column >= columns.size()) {
      place.column -= columns.size();
      continue;
    }
    const DeclaredOutput& output = subject.outputs[k];
    if (subject.outputs.size() > 1 && !output.label.empty()) place.tensor = output.label;
    if (output.granule > 1) place.head = columns[place.column] / output.granule;
    return place;
  }
  place.column = column;
  return place;
}

/// "k column 5 (head 0)"
[[nodiscard]] inline std::string column_text(const OutputPlace& p) {
  return (p.tensor == "output" ? "" : p.tensor + " ") + "column " + std::to_string(p.column) +
         (p.head ? " (head " + std::to_string(*p.head) + ")" : "");
}
/// "rank 2, k column 5 (head 0), token 3"
[[nodiscard]] inline std::string place_text(const OutputPlace& p) {
  return "rank " + std::to_string(p.rank) + " " + column_text(p) + ", token " +
         std::to_string(p.token);
}

}  // namespace tpsim
