// SPDX-License-Identifier: MIT
#include "sim/subjects.hpp"

namespace tpsim {

TPSIM_INSTANTIATE_VOCAB()

}  // namespace tpsim
