// SPDX-License-Identifier: MIT
#include "sim/subjects.hpp"

namespace tpsim {

TPSIM_INSTANTIATE_LINEAR()

}  // namespace tpsim
