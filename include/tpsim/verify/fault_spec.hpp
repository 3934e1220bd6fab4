// SPDX-License-Identifier: MIT
// The shape on which a fault shows.
#pragma once

#include <tpsim/verify/fault_list.hpp>

namespace tpsim {

/// `spec` with what `fault` is about: its row bias, or its one fused tensor on disk.
[[nodiscard]] inline LayerSpec with_parts_of_fault(LayerSpec spec, const std::string& fault) {
  const Fault* f = find_fault(fault);
  return f != nullptr && f->needs ? f->needs(std::move(spec)) : std::move(spec);
}

/// The same, and with sizes that show the fault, as far as they are free to change.
[[nodiscard]] inline LayerSpec spec_for_fault(LayerSpec spec, const std::string& fault) {
  const Fault* f = find_fault(fault);
  spec = with_parts_of_fault(std::move(spec), fault);
  return f != nullptr && f->shows ? f->shows(std::move(spec)) : std::move(spec);
}

}  // namespace tpsim
