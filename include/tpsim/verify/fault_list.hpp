// SPDX-License-Identifier: MIT
// The faults that exist, by name: each a variation of the real code, wrong in a way in which real
// engines were.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <tpsim/verify/faults/comm_faults.hpp>
#include <tpsim/verify/faults/decoder_faults.hpp>
#include <tpsim/verify/faults/forward_faults.hpp>
#include <tpsim/verify/faults/loader_faults.hpp>
#include <tpsim/verify/faults/vocab_faults.hpp>

namespace tpsim {

[[nodiscard]] inline const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> list;
    for (auto part : {detail::loader_faults(), detail::forward_faults(), detail::comm_faults(),
                      detail::vocab_faults(), detail::decoder_faults()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

/// The fault of this name; null for none.
[[nodiscard]] inline const Fault* find_fault(const std::string& name) {
  const auto it = std::find_if(faults().begin(), faults().end(),
                               [&](const Fault& f) { return f.name == name; });
  return it == faults().end() ? nullptr : &*it;
}

}  // namespace tpsim
