// SPDX-License-Identifier: MIT
// Random legal and illegal layers. Every choice is a number that counts up from the smallest
// layer, so that shrinking ends there: tp 2, one head or row a rank, sizes of 1, no option.
#pragma once

#include <rapidcheck.h>

#include <array>
#include <numeric>

#include <properties/case.hpp>
#include <properties/disk_orders.hpp>

namespace tpsim::properties {
namespace detail {

// The numbers that a layer is made from. Few and small: a property runs hundreds of layers.
struct Draws {
  std::array<int, 16> number{};
  std::size_t next = 0;
  int below(int n) { return number[next++] % n; }
  Index from_one(int most) { return 1 + below(most); }
  bool flag() { return below(2) == 1; }
};

// 240 is divisible by every range in use, so that `% n` stays even and 0 stays the smallest.
constexpr int kDraws = 240;

[[nodiscard]] inline rc::Gen<Draws> draws() {
  return rc::gen::resize(
      rc::kNominalSize,
      rc::gen::map(rc::gen::container<std::array<int, 16>>(rc::gen::inRange(0, kDraws)),
                   [](const std::array<int, 16>& number) { return Draws{number, 0}; }));
}

}  // namespace detail
}  // namespace tpsim::properties
