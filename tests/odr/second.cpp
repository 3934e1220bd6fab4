// SPDX-License-Identifier: MIT
// The other translation unit of first.cpp.
#include <all_headers.hpp>

int version_length();

int version_length() { return sizeof(TPSIM_VERSION); }
