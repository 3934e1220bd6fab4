// SPDX-License-Identifier: MIT
// With second.cpp: a function in a header without `inline` would be defined twice here.
#include <all_headers.hpp>

int version_length();

int main() { return version_length() == sizeof(TPSIM_VERSION) ? 0 : 1; }
