// SPDX-License-Identifier: MIT
#include "sim/subjects.hpp"

#include <tpsim/verify/faults.hpp>

namespace tpsim::cli {

std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault) {
  return fault.empty() ? make_subject(spec) : make_faulty_subject(spec, fault);
}

}  // namespace tpsim::cli
