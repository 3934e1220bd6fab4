// SPDX-License-Identifier: MIT
// What a legal tp costs: bytes of weights and kv cache on each rank, collectives for each token.
#pragma once

#include <algorithm>
#include <vector>

#include <tpsim/comm/trace.hpp>
#include <tpsim/verify/tp_rules.hpp>

namespace tpsim {

/// How one weight is shared out.
enum class WeightCut : std::uint8_t {
  whole,   ///< on every rank
  even,    ///< n / tp
  heads,   ///< whole query heads
  kv,      ///< whole kv heads; with more ranks than kv heads each rank has one, which it shares
  chunks,  ///< ceil(n / tp), the last ranks fewer
  blocks,  ///< the same in blocks of 32
  vocab,   ///< n / tp of the padded rows
};

/// When a weight is read and multiplied.
enum class WeightRole : std::uint8_t {
  dense,      ///< with every token
  expert,     ///< with the tokens that choose it; expert parallelism shares these out
  embedding,  ///< its rows are looked up; as a tied head it is read and multiplied, too
  head,       ///< with the last token of a sequence
};

/// `count` equal weights [rows, cols] of a model; `cols` 1 for a bias or a norm.
struct ModelWeight {
  std::string name;
  Index count = 0, rows = 0, cols = 1;
  WeightCut cut = WeightCut::whole;
  int tp_dim = 0;          ///< the dimension that is cut
  bool quantised = false;  ///< as the model's Quantization has it; else in the model's dtype
  WeightRole role = WeightRole::dense;
};

/// All weights of the model as `engine` cuts them.
[[nodiscard]] std::vector<ModelWeight> model_weights(const ModelShape& m, Engine engine);

/// Bytes of a quantised [rows, cols] with its scales and zero points (fp16 scales of gptq and awq,
/// f32 scales of fp8, one byte a block of mxfp4), or of a plain one.
[[nodiscard]] Index weight_bytes(const ModelShape& m, Index rows, Index cols, bool quantised);

/// Bytes of the model as the checkpoint has it, without an engine's padding.
[[nodiscard]] Index checkpoint_bytes(const ModelShape& m);

/// Weights on one rank.
struct RankBytes {
  Index sharded = 0;     ///< on this rank alone
  Index replicated = 0;  ///< on another rank too
  [[nodiscard]] Index total() const { return sharded + replicated; }
  friend bool operator==(const RankBytes&, const RankBytes&) = default;
};

struct PlannedCollective {
  std::string op;
  Index count = 0;        ///< in one forward
  Index array_bytes = 0;  ///< of the whole array, for one token
};

struct TpCost {
  std::vector<RankBytes> weights;  ///< by rank: ranks_of() them, those of one tp group together
  std::vector<Index> experts;      ///< by rank, of a layer with experts
  Index kv_bytes_per_token = 0;    ///< of each rank
  std::vector<PlannedCollective> collectives;
  Index wire_bytes = 0;         ///< for one token, of a rank in a ring; of the gather, the root's
  Index logits_wire_bytes = 0;  ///< those of the last collective, which takes one token of a prompt
};

/// @pre broken_rules(m, engine, tp, ep) is empty
[[nodiscard]] TpCost tp_cost(const ModelShape& m, Engine engine, int tp, int ep = 0);

}  // namespace tpsim

#include <tpsim/verify/detail/tp_cost.hpp>
