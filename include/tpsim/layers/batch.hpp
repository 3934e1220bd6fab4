// SPDX-License-Identifier: MIT
// Which tokens one step of a decoder computes, and the keys and values that it keeps of them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>

namespace tpsim {

/// New tokens of one sequence, and how many of it came in earlier steps.
struct SequenceStep {
  Index sequence = 0;  ///< its number in the cache
  Index past = 0;
  Index tokens = 0;
  friend bool operator==(const SequenceStep&, const SequenceStep&) = default;
};

/// The tokens of one step, sequence after sequence: a prefill has all tokens of its sequences, a
/// decode one of each.
class Batch {
 public:
  Batch() = default;
  /// @throws LayoutError (divide) for a step without tokens, or a sequence that is there twice
  explicit Batch(std::vector<SequenceStep> steps) : steps_(std::move(steps)) {
    std::vector<Violation> broken;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].tokens <= 0 || steps_[i].past < 0)
        broken.push_back({"divide", "sequence " + std::to_string(steps_[i].sequence) + " has " +
                                        std::to_string(steps_[i].tokens) + " new tokens after " +
                                        std::to_string(steps_[i].past)});
      for (std::size_t j = 0; j < i; ++j)
        if (steps_[j].sequence == steps_[i].sequence)
          broken.push_back(
              {"names", "sequence " + std::to_string(steps_[i].sequence) + " is there twice"});
    }
    if (!broken.empty()) throw LayoutError("this is no batch", std::move(broken));
  }
  /// Whole sequences of these lengths, numbered from 0.
  [[nodiscard]] static Batch prefill(const std::vector<Index>& lengths) {
    std::vector<SequenceStep> steps;
    for (const Index length : lengths)
      steps.push_back({static_cast<Index>(steps.size()), 0, length});
    return Batch(std::move(steps));
  }

  [[nodiscard]] const std::vector<SequenceStep>& steps() const { return steps_; }
  [[nodiscard]] Index tokens() const {
    Index n = 0;
    for (const SequenceStep& s : steps_) n += s.tokens;
    return n;
  }
  /// Of each token in its sequence.
  [[nodiscard]] std::vector<Index> positions() const {
    std::vector<Index> out;
    for (const SequenceStep& s : steps_)
      for (Index t = 0; t < s.tokens; ++t) out.push_back(s.past + t);
    return out;
  }
  /// Row of the last token of each sequence.
  [[nodiscard]] std::vector<Index> last_tokens() const {
    std::vector<Index> out;
    Index row = 0;
    for (const SequenceStep& s : steps_) out.push_back((row += s.tokens) - 1);
    return out;
  }
  friend bool operator==(const Batch&, const Batch&) = default;

 private:
  std::vector<SequenceStep> steps_;
};

/// Keys and values of one attention layer on one rank, of its own kv heads alone, by sequence.
template <DecoderBackend B>
class KvCache {
 public:
  using Tensor = typename B::Tensor;
  struct Entry {
    Tensor k, v;  ///< [tokens so far, local kv heads head_dim], [.., local kv heads v_head_dim]
  };

  KvCache() = default;
  /// @param capacity  positions that a sequence can have; nothing: any number
  explicit KvCache(std::optional<Index> capacity) : capacity_(capacity) {}

  /// Appends the new tokens of a sequence and returns all that there are.
  /// @throws LayoutError (state) when what is there is not `step.past` tokens; (cover) when they do
  ///   not fit
  const Entry& append(B& b, const SequenceStep& step, Tensor k, Tensor v) {
    const auto it = entries_.find(step.sequence);
    const Index held = it == entries_.end() ? 0 : b.shape(it->second.k).rows();
    if (held != step.past)
      throw LayoutError(
          "the cache holds other tokens than the step goes on from",
          {{"state", "sequence " + std::to_string(step.sequence) + " has " + std::to_string(held) +
                         " tokens in the cache, not " + std::to_string(step.past)}});
    if (capacity_ && held + step.tokens > *capacity_)
      throw LayoutError(
          "the sequence is longer than the cache",
          {{"cover", std::to_string(held + step.tokens) + " tokens, and there is room for " +
                         std::to_string(*capacity_)}});
    if (it == entries_.end())
      return entries_.emplace(step.sequence, Entry{std::move(k), std::move(v)}).first->second;
    it->second.k = joined(b, it->second.k, k);
    it->second.v = joined(b, it->second.v, v);
    return it->second;
  }
  [[nodiscard]] const std::map<Index, Entry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  static Tensor joined(B& b, const Tensor& old, const Tensor& added) {
    const std::vector<const Tensor*> both{&old, &added};
    return b.concat(both, 0);
  }
  std::optional<Index> capacity_;
  std::map<Index, Entry> entries_;
};

/// The tensors one below the other: [sum of their tokens, columns].
template <Backend B>
[[nodiscard]] typename B::Tensor join_tokens(B& b, std::vector<typename B::Tensor> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  std::vector<const typename B::Tensor*> in;
  for (const auto& part : parts) in.push_back(&part);
  return b.concat(in, 0);
}

}  // namespace tpsim
