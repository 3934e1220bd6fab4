// SPDX-License-Identifier: MIT
// Kernel bodies, element by element: filling, converting, sums, products and factors.
#pragma once

#include <tpsim/backend/cuda/element.hpp>
#include <tpsim/backend/cuda/lane.hpp>

namespace tpsim::cuda::body {

/// Every element := the number with these bits; of a 2-byte type the lower half of them.
struct Fill {
  Matrix out;
  std::uint32_t bits;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      if (out.type == Type::f32)
        static_cast<std::uint32_t*>(out.data)[place(out, i)] = bits;
      else
        static_cast<std::uint16_t*>(out.data)[place(out, i)] = static_cast<std::uint16_t>(bits);
  }
};

/// out := in, rounded to out's type; NaNs keep sign and upper payload.
struct Convert {
  ConstMatrix in;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count) store(out, i, load(in, i));
  }
};

/// out := a + b, one rounding to f32, then to out's type.
struct Add {
  ConstMatrix a, b;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, load(a, i) + load(b, i));
  }
};

/// out := a b, likewise.
struct Mul {
  ConstMatrix a, b;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, load(a, i) * load(b, i));
  }
};

/// out[t, c] := y[t, c] + bias[0, c]
struct AddBias {
  ConstMatrix y, bias;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, load(y, i) + load(bias, i % out.cols));
  }
};

/// out[t, c] := x[t, c] w[0, c % w.cols]
struct MulColumns {
  ConstMatrix x, w;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, load(x, i) * load(w, i % out.cols % w.cols));
  }
};

/// out := factor x, the product in f64.
struct Times {
  ConstMatrix x;
  double factor;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, static_cast<float>(static_cast<double>(load(x, i)) * factor));
  }
};

/// out[t] := x[t] where keep[t], else zeros.
struct KeepTokens {
  ConstMatrix x;
  const std::uint8_t* keep;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, keep[i / out.cols] != 0 ? load(x, i) : 0.0F);
  }
};

/// out[t] := table[rows[t]]. @pre the rows are rows of the table
struct Lookup {
  ConstMatrix table;
  const Size* rows;
  Matrix out;
  TPSIM_HOST_DEVICE void operator()(Lane lane) const {
    for (Size i = lane.index; i < out.size(); i += lane.count)
      store(out, i, load(table, rows[i / out.cols], i % out.cols));
  }
};

}  // namespace tpsim::cuda::body
