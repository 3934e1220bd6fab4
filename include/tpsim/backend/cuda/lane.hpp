// SPDX-License-Identifier: MIT
// How work is shared out: lanes, and what they find together. Plain C++17.
//
// A body is one lane's share of an operation. Element by element: body(lane), where lane `index` of
// `count` takes the elements index, index + count, ... and no lane reads what another one writes.
// Row by row: body(row, lane, all), where all.sum(x), all.max(x) and all.best(x) are those of all
// lanes of the row, in one order that depends on `count` alone; every lane calls them equally
// often.
#pragma once

#include <tpsim/backend/cuda/matrix.hpp>

namespace tpsim::cuda {

struct Lane {
  Size index = 0, count = 1;
};

/// A column's value and its id. Of equal values the smaller id wins; a NaN beats every number.
struct Choice {
  float value = 0, id = 0;
};
TPSIM_HOST_DEVICE inline bool beats(const Choice& a, const Choice& b) {
  const bool nan = a.value != a.value, its_nan = b.value != b.value;
  if (nan != its_nan) return nan;
  return a.value > b.value || ((nan || a.value == b.value) && a.id < b.id);
}

/// What lanes tell each other, two values at a time. A NaN is the largest.
struct Sum {
  TPSIM_HOST_DEVICE double operator()(double a, double b) const { return a + b; }
};
struct Max {
  TPSIM_HOST_DEVICE double operator()(double a, double b) const { return b > a || b != b ? b : a; }
};
struct Best {
  TPSIM_HOST_DEVICE Choice operator()(const Choice& a, const Choice& b) const {
    return beats(b, a) ? b : a;
  }
};

/// One lane has it all.
struct OneLane {
  TPSIM_HOST_DEVICE double sum(double x) const { return x; }
  TPSIM_HOST_DEVICE double max(double x) const { return x; }
  TPSIM_HOST_DEVICE Choice best(const Choice& x) const { return x; }
};

}  // namespace tpsim::cuda
