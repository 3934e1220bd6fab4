// SPDX-License-Identifier: MIT
// Options and shapes of the linear family, and the rules that decide which of them can be right.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tpsim/backend/backend.hpp>
#include <tpsim/core/divide.hpp>
#include <tpsim/layers/shard_id.hpp>
#include <tpsim/layout/row_layout.hpp>

namespace tpsim {

struct LinearOptions {
  bool bias = false;
  bool skip_bias_add = false;  ///< leave the bias to the caller (skipped_bias())
};
struct ColumnOptions {
  bool bias = false;
  bool skip_bias_add = false;
  bool gather_output = false;  ///< all_gather the columns: every rank gets all of them
};
struct RowOptions {
  bool bias = false;
  bool skip_bias_add = false;
  bool input_is_parallel = true;  ///< false: x is whole, each rank takes its own columns
  bool reduce_results = true;     ///< false: the caller sums the partial results
};

/// One part of a merged layer: its name (the label in a layout expression) and full rows.
struct MergedPart {
  std::string name;
  Index rows = 0;
};

/// The parts of a gated MLP's first layer.
[[nodiscard]] inline std::vector<MergedPart> gate_up(Index intermediate) {
  return {{"gate", intermediate}, {"up", intermediate}};
}

/// Sizes of a fused query/key/value projection, of the whole model.
struct QkvShape {
  Index hidden = 0, head_dim = 0, heads = 0, kv_heads = 0;
  Index v_head_dim = 0;  ///< 0: as head_dim
  [[nodiscard]] constexpr Index v_head() const { return v_head_dim == 0 ? head_dim : v_head_dim; }
};

/// The canonical logical tensors that full() reads: "weight", "bias", "q_proj.weight", ...
template <Backend B>
using FullParams = std::map<std::string, typename B::Param, std::less<>>;

/// x W^T (+ b) on the tensors PREFIXweight and PREFIXbias; no bias when there is none.
/// @throws LayoutError (names) when there is no PREFIXweight
template <Backend B>
[[nodiscard]] typename B::Tensor full_linear(B& b, const typename B::Tensor& x,
                                             const FullParams<B>& t, const std::string& prefix) {
  const auto weight = t.find(prefix + "weight");
  if (weight == t.end())
    throw LayoutError("full() reads a tensor that is not there",
                      {{"names", "the checkpoint has no " + prefix + "weight"}});
  typename B::Tensor y = b.linear(x, weight->second);
  const auto bias = t.find(prefix + "bias");
  return bias == t.end() ? std::move(y) : b.add_bias(y, bias->second);
}

/// The tensors side by side: [tokens, sum of their columns].
template <Backend B>
[[nodiscard]] typename B::Tensor join_columns(B& b, std::span<const typename B::Tensor> parts) {
  std::vector<const typename B::Tensor*> in;
  for (const auto& part : parts) in.push_back(&part);
  return b.concat(in, 1);
}
template <Backend B>
[[nodiscard]] typename B::Tensor join_columns(B& b, const std::vector<typename B::Tensor>& parts) {
  return join_columns(b, std::span<const typename B::Tensor>(parts));
}

[[nodiscard]] inline Index rows_of(std::span<const MergedPart> parts) {
  Index rows = 0;
  for (const MergedPart& part : parts) rows += part.rows;
  return rows;
}

/// kv heads on each rank, and how many ranks share one. Source: vLLM QKVParallelLinear.
[[nodiscard]] constexpr Index local_kv_heads(Index kv_heads, Index tp) {
  return tp >= kv_heads ? 1 : kv_heads / tp;
}
[[nodiscard]] constexpr Index kv_head_replicas(Index kv_heads, Index tp) {
  return tp >= kv_heads ? tp / kv_heads : 1;
}
[[nodiscard]] constexpr Index local_rows(const QkvShape& s, Index tp) {
  return s.heads / tp * s.head_dim + local_kv_heads(s.kv_heads, tp) * (s.head_dim + s.v_head());
}

// Every rule that the sizes break, all at once; empty means legal. ------------------------------

/// Tells of a size that is not positive, and whether it is.
inline bool add_unless_positive(std::vector<Violation>& v, Index n, const std::string& what) {
  if (n <= 0) v.push_back({"divide", what + " is " + std::to_string(n) + ", it must be positive"});
  return n > 0;
}

[[nodiscard]] inline std::vector<Violation> linear_violations(Index in, Index out) {
  std::vector<Violation> v;
  add_unless_positive(v, in, "in");
  add_unless_positive(v, out, "out");
  return v;
}

[[nodiscard]] inline std::vector<Violation> column_violations(Index in, Index out,
                                                              const ColumnOptions& o, Index tp) {
  std::vector<Violation> v = linear_violations(in, out);
  if (out > 0 && (tp <= 0 || out % tp != 0)) v.push_back(does_not_divide(out, "output rows", tp));
  if (o.bias && o.gather_output && o.skip_bias_add)
    v.push_back(
        {"state", "gather_output with skip_bias_add hands out whole columns and a cut bias"});
  return v;
}

[[nodiscard]] inline std::vector<Violation> merged_violations(Index in,
                                                              std::span<const MergedPart> parts,
                                                              const ColumnOptions& o, Index tp) {
  std::vector<Violation> v = linear_violations(in, 1);
  if (parts.empty()) v.push_back({"divide", "a merged layer needs at least one part"});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const MergedPart& part = parts[i];
    if (part.rows <= 0)
      v.push_back({"divide", "part " + part.name + " has " + std::to_string(part.rows) +
                                 " rows, it must be positive"});
    else if (tp <= 0 || part.rows % tp != 0)
      v.push_back(does_not_divide(part.rows, "rows of part " + part.name, tp));
    for (std::size_t j = 0; j < i; ++j)
      if (parts[j].name == part.name) v.push_back({"names", "two parts are named " + part.name});
  }
  if (o.bias && o.gather_output && o.skip_bias_add)
    v.push_back(
        {"state", "gather_output with skip_bias_add hands out whole columns and a cut bias"});
  return v;
}

[[nodiscard]] inline std::vector<Violation> qkv_violations(const QkvShape& s, Index tp) {
  std::vector<Violation> v;
  const auto positive = [&](Index n, const char* what) { return add_unless_positive(v, n, what); };
  positive(s.hidden, "hidden");
  positive(s.head_dim, "head_dim");
  if (s.v_head_dim != 0) positive(s.v_head_dim, "v_head_dim");
  const bool heads = positive(s.heads, "heads"), kv = positive(s.kv_heads, "kv_heads");
  if (heads && kv && s.heads % s.kv_heads != 0)
    v.push_back({"heads", std::to_string(s.heads) + " query heads over " +
                              std::to_string(s.kv_heads) + " kv heads leaves " +
                              std::to_string(s.heads % s.kv_heads)});
  if (heads && (tp <= 0 || s.heads % tp != 0))
    v.push_back(does_not_divide(s.heads, "query heads", tp));
  if (kv && (tp <= 0 || (s.kv_heads % tp != 0 && tp % s.kv_heads != 0))) {
    Violation broken = does_not_divide(s.kv_heads, "kv heads", tp);
    if (tp > 0)
      broken.message +=
          ", and " + std::to_string(tp) + " does not divide by " + std::to_string(s.kv_heads);
    v.push_back(broken);
  }
  return v;
}

[[nodiscard]] inline std::vector<Violation> row_violations(Index in, Index out, const RowOptions& o,
                                                           Index tp) {
  std::vector<Violation> v = linear_violations(in, out);
  if (in > 0 && (tp <= 0 || in % tp != 0)) v.push_back(does_not_divide(in, "input columns", tp));
  if (o.bias && !o.reduce_results && !o.skip_bias_add)
    v.push_back({"state",
                 "a bias cannot be added when reduce_results is off: the caller's sum would decide "
                 "how often it counts (use skip_bias_add)"});
  return v;
}

/// @throws LayoutError with all of them, unless there are none
inline void require(std::vector<Violation> violations) {
  if (!violations.empty()) throw LayoutError("this layer cannot be built", std::move(violations));
}

/// @throws LayoutError (divide) when the checkpoint's tensor has another shape than the layer needs
inline void require_shape(const FullTensor& loaded, Shape wanted) {
  if (loaded.shape() != wanted)
    throw LayoutError(
        "tensor " + loaded.name() + " has the wrong shape",
        {{"divide", loaded.name() + " is " + loaded.shape().str() + ", wanted " + wanted.str()}});
}

/// Index of the part that `id` names. @throws LayoutError (names)
[[nodiscard]] inline std::size_t find_shard(std::span<const MergedPart> parts, const ShardId& id) {
  std::string known;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (id.is(parts[k].name, static_cast<Index>(k))) return k;
    known += (k == 0 ? "" : ", ") + parts[k].name;
  }
  throw LayoutError("no part " + id.str() + " in this layer",
                    {{"names", "the parts are " + known}});
}
[[nodiscard]] inline std::size_t qkv_shard(const ShardId& id) {
  static const std::vector<MergedPart> parts{{"q", 0}, {"k", 0}, {"v", 0}};
  return find_shard(parts, id);
}
inline void require_run(std::size_t begin, std::size_t end) {
  if (begin >= end)
    throw LayoutError("a run of parts must go forward",
                      {{"names", "the last part comes before the first"}});
}

}  // namespace tpsim
