// SPDX-License-Identifier: MIT
// One violated law: what was seen, where, and what to do about it.
#pragma once

#include <string>

#include <tpsim/core/bytes.hpp>

namespace tpsim {

/// A check that failed, in words. Findings come from verification alone: nothing here knows which
/// fault, if any, was put in.
struct Finding {
  std::string check = {};    ///< id of the law: "state", "partners", ... (see `tpsim explain`)
  int rank = -1;             ///< tp_rank that it concerns; -1: all of them
  std::string tensor = {};   ///< the tensor or value that it concerns; may be empty
  std::string message = {};  ///< what was seen, with the numbers
  std::string cause = {};    ///< the likely cause; may be empty
  std::string repair = {};   ///< what would be right; may be empty
  friend bool operator==(const Finding&, const Finding&) = default;
};

/// As bytes, for another process.
inline void put(ByteWriter& w, const Finding& f) {
  w.put(f.rank);
  for (const std::string* text : {&f.check, &f.tensor, &f.message, &f.cause, &f.repair})
    w.put_text(*text);
}
[[nodiscard]] inline Finding get_finding(ByteReader& r) {
  Finding f;
  f.rank = r.get<int>();
  for (std::string* text : {&f.check, &f.tensor, &f.message, &f.cause, &f.repair})
    *text = r.get_text();
  return f;
}

}  // namespace tpsim
