// SPDX-License-Identifier: MIT
#include "sim/program.hpp"

int main(int argc, char** argv) { return tpsim::cli::run_program(argc, argv); }
