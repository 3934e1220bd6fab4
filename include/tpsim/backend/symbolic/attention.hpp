// SPDX-License-Identifier: MIT
// Attention: which query head reads which kv head, of which tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/attention_spec.hpp>
#include <tpsim/backend/symbolic/param.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// attention of one rank over one sequence. The value says nothing about where a chunk begins or
/// what a cache held: a token's result is the same for a whole prompt, its chunks, and step by
/// step, because it follows the same tokens.
class Attention : private OneCall {
 public:
  using OneCall::OneCall;

  /// @param sinks  [heads] or null
  /// @throws LayoutError (heads) for sizes that do not fit
  [[nodiscard]] SymbolicTensor operator()(const SymbolicTensor& q, const SymbolicTensor& k,
                                          const SymbolicTensor& v, const AttentionSpec& spec,
                                          const SymbolicParam* sinks) const {
    const auto shape = [](const SymbolicTensor& x) { return Shape(x.tokens.size(), x.width()); };
    require_attention_fits(spec, shape(q), shape(k), shape(v),
                           sinks ? std::optional(sinks->shape().rows()) : std::nullopt);
    Index seen = 0, most = 0;
    for (Index t = 0; t < q.tokens.size(); ++t) {
      const Index keys = spec.last_key(t) - spec.first_key(t) + 1;
      seen += keys;
      most = std::max(most, keys);
    }
    SymbolicCost& cost = context_->cost(tp_rank_);
    cost.flops += 2 * seen * spec.heads * (spec.head_dim + spec.v_head_dim);
    cost.oracle_calls += seen * spec.heads;

    SymbolicTensor out{q.tokens, {}, tp_rank_};
    const std::optional<std::string> sequence = same_sequence(q, k, v);
    if (!sequence) {
      out.append(unknown("attention over other tokens", spec.heads * spec.v_head_dim));
      return out;
    }
    const std::vector<Head> queries = heads("query", q, spec.heads, spec.head_dim);
    const std::vector<Head> keys = heads("key", k, spec.kv_heads, spec.head_dim);
    const std::vector<Head> weighted = heads("value", v, spec.kv_heads, spec.v_head_dim);
    const std::vector<Sink> offsets = sink_rows(sinks);
    for (Index i = 0; i < spec.heads; ++i) {
      const auto kv = static_cast<std::size_t>(i / spec.group());
      const Sink* sink = sinks ? &offsets[static_cast<std::size_t>(i)] : nullptr;
      ColumnRun run = head(spec, i, queries[static_cast<std::size_t>(i)], keys[kv], weighted[kv],
                           sink, *sequence);
      if (known(run) && !run.terms.empty()) context_->note_keys(run.terms.front().value, most);
      out.append(std::move(run));
    }
    return out;
  }

 private:
  // A local head: head `number` of `of` in a value; none when it is zeros or not one head.
  struct Head {
    std::optional<ValueId> value;
    Index number = 0, of = 0;
    bool zero = false;
  };
  struct Sink {
    Logical tensor;  ///< null: not loaded
    Index row = 0;
    Rational scale = 1;
  };

  // What the label must say about the tokens; nothing when the cache does not fit, which is told.
  [[nodiscard]] std::optional<std::string> same_sequence(const SymbolicTensor& q,
                                                         const SymbolicTensor& k,
                                                         const SymbolicTensor& v) const {
    const Index before = k.tokens.size() - q.tokens.size();
    const auto cache = [&](std::string message, std::string repair) {
      report("state", "", std::move(message), "the cache does not hold the sequence in order",
             std::move(repair));
    };
    if (const Index at = Runs::first_difference(q.tokens, k.tokens.slice(before, q.tokens.size()));
        at >= 0) {
      cache("query row " + std::to_string(at) + " is token " + std::to_string(q.tokens[at]) +
                ", at its position the cache holds the key of token " +
                std::to_string(k.tokens[before + at]),
            "append the keys of a step to the cache before its attention");
      return std::nullopt;
    }
    if (const Index at = Runs::first_difference(k.tokens, v.tokens); at >= 0) {
      cache("row " + std::to_string(at) + " of the cache holds the key of token " +
                std::to_string(k.tokens[at]) + " and the value of token " +
                std::to_string(v.tokens[at]),
            "append keys and values of the same tokens");
      return std::nullopt;
    }
    std::vector<Index> follows;
    Index last = -1;
    for (const Run& run : k.tokens)
      for (Index i = 0; i < run.length; ++i) {
        follows.push_back(last);
        last = run.at(i);
      }
    const auto conflict = context_->predecessors().tell(k.tokens, follows);
    if (!conflict) return std::string();
    if (tp_rank_ < 0) return ", of tokens " + context_->predecessors().deviation(k.tokens, follows);
    const auto after = [](Index token) {
      return token < 0 ? std::string("first") : "after token " + std::to_string(token);
    };
    cache("row " + std::to_string(conflict->index) + " of the cache is token " +
              std::to_string(conflict->token) + ", " + after(conflict->told) +
              "; in its sequence it comes " + after(conflict->agreed),
          "one cache for each sequence, its tokens in order");
    return std::nullopt;
  }

  [[nodiscard]] std::vector<Head> heads(std::string_view what, const SymbolicTensor& x, Index count,
                                        Index dim) const {
    const SymbolicTensor summed = whole_runs(x, "attention");
    std::vector<Head> out;
    for (Index i = 0; i < count; ++i)
      out.push_back(one_head(what, i, columns_of(summed, i * dim, dim), dim));
    return out;
  }
  [[nodiscard]] Head one_head(std::string_view what, Index i, const std::vector<ColumnRun>& held,
                              Index dim) const {
    for (const ColumnRun& run : held)
      if (!known(run)) return {};
    if (held.size() == 1 && held.front().terms.empty()) return {std::nullopt, 0, 0, true};
    const Column c = read_column(values(), held.front());
    const Index width = values().node(c.value).width;
    if (held.size() == 1 && c.stride == 1 && c.begin % dim == 0 && width % dim == 0)
      return {c.value, c.begin / dim, width / dim};
    report_once("heads", context_->name(c.value),
                "local " + std::string(what) + " head " + std::to_string(i) + " holds " +
                    describe(*context_, SymbolicTensor{{}, held, tp_rank_}) + ": not one head of " +
                    std::to_string(dim) + " columns",
                "the cut runs through a head, or heads are joined in another order",
                "cut q, k and v at whole heads");
    return {};
  }
  [[nodiscard]] std::vector<Sink> sink_rows(const SymbolicParam* sinks) const {
    std::vector<Sink> out;
    if (sinks == nullptr) return out;
    for (const RowSource& s : sinks->row_sources())
      for (Index i = 0; i < s.rows; ++i)
        out.push_back(
            {s.tensor, s.tensor && !is_zeros(s.tensor) ? s.src_rows[i] : 0, sinks->scale()});
    return out;
  }

  [[nodiscard]] ColumnRun head(const AttentionSpec& spec, Index i, const Head& q, const Head& k,
                               const Head& v, const Sink* sink, std::string label) const {
    if (v.zero) return {spec.v_head_dim, {}};
    if (!q.value || !k.value || !v.value)
      return unknown("attention of a head that is not known", spec.v_head_dim);
    std::string more;
    if (!reads_its_kv_head(q, k, "kv head", 'k', more) ||
        !reads_its_kv_head(q, v, "value head", 'v', more) || !has_its_slope(spec, i, q, more) ||
        !has_its_sink(q, sink, more))
      return unknown("attention of heads that do not belong together", spec.v_head_dim);
    label.insert(
        0, "1/sqrt(" + std::to_string(spec.scale_dim) + ")" +
               (spec.window ? ", window " + std::to_string(*spec.window) : "") +
               (spec.alibi ? ", alibi of " + std::to_string(spec.alibi->total_heads) : "") + more);
    const ValueId value = values().intern({.op = ValueOp::attention,
                                           .a = *q.value,
                                           .b = *k.value,
                                           .c = *v.value,
                                           .tensor = sink ? sink->tensor : nullptr,
                                           .label = std::move(label),
                                           .n = spec.head_dim,
                                           .width = q.of * spec.v_head_dim});
    return {spec.v_head_dim, {{value, q.number * spec.v_head_dim, 1, Coverage::whole(1)}}};
  }
  // Query head h of the model reads kv head h / (query heads / kv heads), or what full() lets it.
  [[nodiscard]] bool reads_its_kv_head(const Head& q, const Head& kv, const std::string& what,
                                       char kind, std::string& label) const {
    const Index group = q.of % kv.of == 0 ? q.of / kv.of : 0;
    const Index wanted = group > 0 ? q.number / group : -1;
    if (kv.number == wanted) return true;
    if (context_->may_meet(tp_rank_, kind, static_cast<std::uint64_t>(*q.value),
                           static_cast<std::uint64_t>(*kv.value), q.number * kv.of + kv.number)) {
      label += ", " + what + " " + std::to_string(kv.number) + " for query head " +
               std::to_string(q.number);
      return true;
    }
    report_once(
        "heads", context_->name(*q.value),
        "query head " + std::to_string(q.number) + " meets " + what + " " +
            std::to_string(kv.number) + ", wanted " + what + " " +
            (wanted < 0 ? "of another number of heads" : std::to_string(wanted)) + " of " +
            context_->name(*kv.value),
        "q and kv heads are cut by different rules",
        "rank r holds the kv heads of its query heads: head h reads h / (heads / kv heads)");
    return false;
  }
  [[nodiscard]] bool has_its_slope(const AttentionSpec& spec, Index i, const Head& q,
                                   std::string& label) const {
    if (!spec.alibi) return true;
    const Index used = spec.alibi->first_head + i;
    if (used == q.number) return true;
    if (context_->may_meet(tp_rank_, 'a', static_cast<std::uint64_t>(*q.value),
                           static_cast<std::uint64_t>(spec.alibi->total_heads), used - q.number)) {
      label += ", slopes shifted by " + std::to_string(used - q.number);
      return true;
    }
    report_once("heads", context_->name(*q.value),
                "query head " + std::to_string(q.number) + " has the ALiBi slope of head " +
                    std::to_string(used),
                "slopes are counted from this rank's first head",
                "first_head is the global number of the rank's first query head");
    return false;
  }
  [[nodiscard]] bool has_its_sink(const Head& q, const Sink* sink, std::string& label) const {
    if (sink == nullptr) return true;
    if (!sink->tensor || is_zeros(sink->tensor)) return false;  // unwritten: the loader's finding
    if (sink->scale != Rational(1)) label += ", sinks times " + sink->scale.str();
    if (sink->row == q.number && sink->tensor->shape.rows() == q.of) return true;
    if (context_->may_meet(tp_rank_, 's', static_cast<std::uint64_t>(*q.value), sink->tensor->key,
                           sink->row - q.number)) {
      label += ", sinks shifted by " + std::to_string(sink->row - q.number);
      return true;
    }
    report_once("partners", sink->tensor->name,
                "row " + std::to_string(sink->row) + " of " + sink->tensor->name +
                    " is the sink of query head " + std::to_string(q.number),
                "the sinks and the query heads are cut by different rules",
                "cut the sinks like the query heads");
    return false;
  }
};

}  // namespace tpsim::detail
