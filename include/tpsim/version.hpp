// SPDX-License-Identifier: MIT
// The one place where the version is written; CMake reads it from here.
#pragma once

#define TPSIM_VERSION_MAJOR 0
#define TPSIM_VERSION_MINOR 1
#define TPSIM_VERSION_PATCH 0
#define TPSIM_VERSION "0.1.0"
