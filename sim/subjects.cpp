// SPDX-License-Identifier: MIT
#include "sim/subjects.hpp"

namespace tpsim {

TPSIM_INSTANTIATE_LINEAR()
TPSIM_INSTANTIATE_VOCAB()
TPSIM_INSTANTIATE_DECODER()
TPSIM_INSTANTIATE_READINGS()

namespace cli {

std::unique_ptr<Subject> subject_of(const LayerSpec& spec, const std::string& fault) {
  return fault.empty() ? make_subject(spec) : make_faulty_subject(spec, fault);
}

}  // namespace cli
}  // namespace tpsim
