// SPDX-License-Identifier: MIT
// About how long a legal tp takes for a token and for a prompt: a roofline, no measurement.
#pragma once

#include <algorithm>

#include <tpsim/verify/tp_cost.hpp>

namespace tpsim {

/// One device and its link to the others. The defaults are those of an NVIDIA H100 SXM, from its
/// data sheet: 3.35 TB/s of HBM3, NVLink of 900 GB/s, half of it in each direction. The latency is
/// an assumption: no data sheet has it.
struct DeviceFigures {
  double bandwidth = 3350e9;  ///< bytes that it reads from its memory in a second
  double flops = 989e12;      ///< operations in a second; default_flops of the dtype
  double link = 450e9;        ///< bytes that it sends in a second
  double latency = 10e-6;     ///< seconds that a collective takes without its bytes
};

/// The same data sheet: 1979 TFLOP/s of bf16 or fp16 with sparsity, half of it without; 67 of fp32,
/// and of fp64 in tensor cores.
[[nodiscard]] constexpr double default_flops(DType dtype) {
  return bytes_of(dtype) <= 2 ? 989e12 : 67e12;
}

/// What the busiest rank does in one forward of one sequence.
struct ForwardWork {
  double bytes = 0;       ///< read: weights, and the kv cache
  double flop = 0;        ///< of products with weights, and of attention
  double wire_bytes = 0;  ///< sent
  Index collectives = 0;
};

/// `tokens` new tokens after `past` that are in the cache. A weight is read once, however many
/// tokens: of the embedding the rows of the tokens, of the experts those that are chosen. Tokens
/// choose experts evenly; each tp group of expert parallelism has a sequence as long. Every token
/// sees all before it, whatever the window. The head has the last token alone.
/// @pre broken_rules(m, engine, tp, ep) is empty
[[nodiscard]] ForwardWork forward_work(const ModelShape& m, Engine engine, int tp, int ep,
                                       Index tokens, Index past);

/// The longer of reading and computing, then what is sent and what each collective takes: nothing
/// overlaps, and nothing else (launches, norms, sampling) takes time.
[[nodiscard]] inline double forward_seconds(const ForwardWork& work, const DeviceFigures& device) {
  return std::max(work.bytes / device.bandwidth, work.flop / device.flops) +
         work.wire_bytes / device.link + static_cast<double>(work.collectives) * device.latency;
}

/// Seconds of a prompt of `tokens`, and of one token after it.
struct TpTime {
  double prompt = 0, token = 0;
};
[[nodiscard]] inline TpTime tp_time(const ModelShape& m, Engine engine, int tp, int ep,
                                    Index tokens, const DeviceFigures& device) {
  return {forward_seconds(forward_work(m, engine, tp, ep, tokens, 0), device),
          forward_seconds(forward_work(m, engine, tp, ep, 1, tokens), device)};
}

}  // namespace tpsim

#include <tpsim/verify/detail/tp_time.hpp>
