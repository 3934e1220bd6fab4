// SPDX-License-Identifier: MIT
// Sizes of a vocabulary that is cut over ranks, its padding, and which rows are whose.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layout/cut.hpp>

namespace tpsim {

/// Rows of an embedding or a head, of the whole model. They grow to a multiple of `pad_to` (times
/// tp), so that they go round the ranks; what is added comes last: zeros, or copies of the last
/// row. Its logits are nobody's, whatever it holds. 1: no padding. Source: vLLM
/// `vocab_parallel_embedding.py` (64), Megatron `tokenizer.py` (128 times tp),
/// `tools/checkpoint/saver_base.py` (copies of the last row).
struct VocabShape {
  Index vocab = 0, hidden = 0;
  Index pad_to = 1;
  bool pad_times_tp = false;
  Fill fill = Fill::zero;
};

[[nodiscard]] constexpr Index padded_vocab(const VocabShape& s, Index tp) {
  const Index multiple = s.pad_to * (s.pad_times_tp ? tp : 1);
  return (s.vocab + multiple - 1) / multiple * multiple;
}

[[nodiscard]] inline std::vector<Violation> vocab_violations(const VocabShape& s, Index tp) {
  std::vector<Violation> v;
  const auto positive = [&](Index n, const char* what) { return add_unless_positive(v, n, what); };
  const bool vocab = positive(s.vocab, "vocab"), pad = positive(s.pad_to, "the padding's multiple");
  positive(s.hidden, "hidden");
  if (!vocab || !pad) return v;
  if (tp <= 0 || padded_vocab(s, tp) % tp != 0)
    v.push_back(does_not_divide(tp <= 0 ? s.vocab : padded_vocab(s, tp),
                                s.pad_to > 1 ? "padded vocabulary rows" : "vocabulary rows", tp));
  return v;
}

/// One rank's part of the vocabulary: `rows` rows, of which the first hold the ids [first, last)
/// and the others are padding. A last rank may hold padding alone.
struct VocabPart {
  Index rows = 0, first = 0, last = 0;
  [[nodiscard]] constexpr Index real() const { return last - first; }
};
/// @pre vocab_violations(s, tp_size) is empty
[[nodiscard]] constexpr VocabPart vocab_part(const VocabShape& s, Index tp_size, Index tp_rank) {
  const Index rows = padded_vocab(s, tp_size) / tp_size;
  const Index first = std::min(tp_rank * rows, s.vocab);
  return {rows, first, std::min(first + rows, s.vocab)};
}

/// Rows of a table, or entries of a bias, on one rank: its own, then the padding.
/// @param loaded  [vocab, hidden] or [vocab], without padding
/// @throws LayoutError (cover) for another shape
template <VocabBackend B>
void load_vocab_rows(B& b, typename B::Param& param, const FullTensor& loaded, const VocabShape& s,
                     const VocabPart& part) {
  require_shape(loaded, b.shape(param).with(0, s.vocab));
  b.copy(param, 0, 0, loaded, part.first, part.real());
  if (s.fill == Fill::zero) return b.fill_zeros(param, part.real(), part.rows - part.real());
  for (Index row = part.real(); row < part.rows; ++row)
    b.copy(param, 0, row, loaded, s.vocab - 1, 1);
}

/// @throws LayoutError (names) with the first id that the vocabulary does not have
inline void require_ids(const std::vector<Index>& ids, Index vocab) {
  for (const Index id : ids)
    if (id < 0 || id >= vocab)
      throw LayoutError("there is no token " + std::to_string(id),
                        {{"names", "token ids go from 0 to " + std::to_string(vocab - 1)}});
}

}  // namespace tpsim
