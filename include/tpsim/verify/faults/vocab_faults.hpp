// SPDX-License-Identifier: MIT
// Faults of the embedding and of the head. An embedding that is not reduced is missing-all-reduce.
#pragma once

#include <tpsim/verify/faults/fault.hpp>

namespace tpsim::detail {

/// A vocabulary that is padded, by whatever its size leaves.
[[nodiscard]] inline LayerSpec with_padded_vocab(LayerSpec s) {
  s.vocab_cut = "padded(8)";
  return s;
}
/// A size that does not fill its last 8 rows.
[[nodiscard]] inline LayerSpec with_odd_vocab(LayerSpec s) {
  if (s.values.empty() && s.vocab % 8 == 0) s.vocab += 5;
  return s;
}
[[nodiscard]] inline LayerSpec with_tied_weight(LayerSpec s) {
  s.tied = true;
  return s;
}

/// Logits reach the reader.
[[nodiscard]] inline LayerSpec with_padded_logits(LayerSpec s) {
  s.argmax = false;
  return with_padded_vocab(std::move(s));
}
/// The head chooses tokens.
[[nodiscard]] inline LayerSpec with_argmax(LayerSpec s) {
  s.argmax = true;
  s.gather_output = false;
  return s;
}
[[nodiscard]] inline LayerSpec with_argmax_and_padding(LayerSpec s) {
  return with_padded_vocab(with_argmax(std::move(s)));
}
/// Two sequences.
[[nodiscard]] inline LayerSpec with_last_token(LayerSpec s) {
  s.last_token = true;
  s.tokens = std::max<Index>(s.tokens, 3);
  return s;
}

[[nodiscard]] inline std::vector<Fault> vocab_faults() {
  return {
      {"vocab-border-off-by-one",
       {"embedding"},
       "the mask takes the ids after first up to last, not those from first on",
       changes(LayerChange::ids_shifted)},
      {"ids-not-masked",
       {"embedding"},
       "ids of other ranks are looked up at id - first, wherever that is, and kept",
       changes(LayerChange::ids_not_masked)},
      {"ids-not-zeroed",
       {"embedding"},
       "ids of other ranks read row 0 and are not zeroed before the sum",
       changes(LayerChange::ids_not_zeroed)},
      {"padded-logits-kept",
       {"lm_head"},
       "the columns of the padding are not cut off the logits",
       changes(LayerChange::padding_kept),
       with_padded_logits,
       with_odd_vocab},
      {"tied-head-not-cut",
       {"lm_head"},
       "the table that the head shares is a whole copy on every rank",
       changes(LayerChange::tied_not_cut),
       with_tied_weight},
      {"argmax-over-one-shard",
       {"lm_head"},
       "each rank chooses among its own columns alone",
       changes(LayerChange::argmax_of_shard),
       with_argmax},
      {"argmax-without-start",
       {"lm_head"},
       "each rank's ids start at 0: the start of its rows is not added",
       changes(LayerChange::argmax_without_start),
       with_argmax},
      {"padding-joins-argmax",
       {"lm_head"},
       "the columns of the padding are not cut off before the greatest is taken",
       changes(LayerChange::argmax_of_padding),
       with_argmax_and_padding,
       with_odd_vocab},
      {"last-token-of-batch",
       {"lm_head"},
       "the head takes the last token of the batch for every sequence",
       changes(LayerChange::last_of_batch),
       with_last_token},
      {"head-over-all-tokens",
       {"lm_head"},
       "the head takes every token of a prefill, not the last of each sequence",
       changes(LayerChange::all_tokens),
       with_last_token},
  };
}

}  // namespace tpsim::detail
