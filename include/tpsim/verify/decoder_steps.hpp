// SPDX-License-Identifier: MIT
// In which steps a decoder computes the tokens of a check: all at once, in chunks, one by one.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <tpsim/layers/batch.hpp>

namespace tpsim {

/// How a decoder's tokens are sequences, and how many of a sequence are new in a step.
struct DecoderSteps {
  Index chunk = 0;  ///< 0: all of them, a prefill; 1: one by one, as in decoding
  friend bool operator==(const DecoderSteps&, const DecoderSteps&) = default;
};

/// Two sequences of different lengths, so that positions are not rows; one when there are less than
/// three tokens.
[[nodiscard]] inline std::vector<Index> sequence_lengths(Index tokens) {
  if (tokens < 3) return {tokens};
  return {tokens - tokens / 3, tokens / 3};
}

/// A step and the rows of the whole input that it computes, in its order.
struct StepRows {
  Batch batch;
  std::vector<Index> rows;
};
[[nodiscard]] inline std::vector<StepRows> steps_of(const std::vector<Index>& lengths,
                                                    DecoderSteps steps) {
  std::vector<Index> done(lengths.size(), 0);
  std::vector<StepRows> out;
  while (true) {
    std::vector<SequenceStep> now;
    std::vector<Index> rows;
    Index first = 0;
    for (std::size_t s = 0; s < lengths.size(); first += lengths[s++]) {
      const Index left = lengths[s] - done[s];
      const Index n = steps.chunk == 0 ? left : std::min(left, steps.chunk);
      if (n == 0) continue;
      now.push_back({static_cast<Index>(s), done[s], n});
      for (Index t = 0; t < n; ++t) rows.push_back(first + done[s] + t);
      done[s] += n;
    }
    if (now.empty()) return out;
    out.push_back({Batch(std::move(now)), std::move(rows)});
  }
}

/// Row i of the result is row rows[i] of x.
template <Backend B>
[[nodiscard]] typename B::Tensor take_tokens(B& b, const typename B::Tensor& x,
                                             const std::vector<Index>& rows) {
  std::vector<typename B::Tensor> parts;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t n = 1;
    while (i + n < rows.size() && rows[i + n] == rows[i] + static_cast<Index>(n)) ++n;
    parts.push_back(b.slice(x, 0, rows[i], static_cast<Index>(n)));
    i += n;
  }
  return join_tokens(b, std::move(parts));
}

}  // namespace tpsim
