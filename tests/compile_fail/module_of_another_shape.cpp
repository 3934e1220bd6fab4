// expect: ModuleHasPlan
// SPDX-License-Identifier: MIT
// A shape that the module's plan does not take is refused by that name.
#include <tpsim/verify/module.hpp>

#include <tests/support/square_mlp.hpp>

tpsim::Report report() { return tpsim::verify(stranger::SquareMlpModule<>{}, 12, {.tp = 2}); }
