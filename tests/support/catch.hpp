// SPDX-License-Identifier: MIT
// Catch2 as the distribution packages it: v3 (Ubuntu 24.04) or v2 (Debian 12, Ubuntu 22.04).
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
