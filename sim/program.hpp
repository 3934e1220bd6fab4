// SPDX-License-Identifier: MIT
// The tpsim command, all but main().
#pragma once

namespace tpsim::cli {

/// Runs the command that main's arguments ask for and writes its report.
/// @returns the exit status: 0 verified, 1 a check found a fault, 2 cannot ask, 3 bug in tpsim
[[nodiscard]] int run_program(int argc, char** argv);

}  // namespace tpsim::cli
