// SPDX-License-Identifier: MIT
// The static reading: tensors that say what they stand for, and no numbers.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/decoder_backend.hpp>
#include <tpsim/backend/symbolic/argmax.hpp>
#include <tpsim/backend/symbolic/attention.hpp>
#include <tpsim/backend/symbolic/column_weight.hpp>
#include <tpsim/backend/symbolic/context.hpp>
#include <tpsim/backend/symbolic/lookup.hpp>
#include <tpsim/backend/symbolic/meeting.hpp>
#include <tpsim/backend/symbolic/placement.hpp>
#include <tpsim/backend/symbolic/product.hpp>
#include <tpsim/backend/symbolic/reduce.hpp>
#include <tpsim/backend/symbolic/rotary.hpp>
#include <tpsim/backend/symbolic/statistics.hpp>

namespace tpsim {

/// Runs a layer on logical values. An operation that its inputs do not allow (a partial operand,
/// partners that are cut differently, a sum that counts twice) is a finding of the context; its
/// result is an unknown value, about which nothing further is reported.
/// @throws LayoutError for sizes that no engine could multiply, add or cut
class SymbolicBackend : private detail::Meeting {
 public:
  using Tensor = SymbolicTensor;
  using Param = SymbolicParam;

  /// @param tp_rank  whose code runs here; -1 for the reference, full()
  SymbolicBackend(SymbolicContext& context, int tp_rank) : Meeting(context, tp_rank) {}

  [[nodiscard]] SymbolicContext& context() const { return *context_; }
  [[nodiscard]] int tp_rank() const { return tp_rank_; }

  /// The stage's input [tokens, width], whole. Equal names are equal values on every rank.
  [[nodiscard]] Tensor input(std::string_view name, Index tokens, Index width) {
    Tensor x{Runs::range(0, tokens), {}, tp_rank_};
    const ValueId value = values().input(name, width);
    x.append({width, {{value, 0, 1, Coverage::whole(1)}}});
    return x;
  }

  [[nodiscard]] Shape shape(const Tensor& x) const { return {x.tokens.size(), x.width()}; }
  [[nodiscard]] Shape shape(const Param& w) const { return w.shape(); }
  [[nodiscard]] DType dtype(const Tensor& /*x*/) const { return DType::symbol; }

  [[nodiscard]] Param empty(std::string_view name, Shape shape) {
    context_->cost(tp_rank_).weight_elements += shape.size();
    return {name, shape};
  }
  void copy(Param& param, int dim, Index offset, const FullTensor& full, Index start,
            Index length) {
    require_copy_fits(param.shape(), dim, offset, full, start, length);
    const Shape from = full.shape();
    std::vector<Piece> pieces = dim == 0 ? full.pieces(start, length, 0, from.cols())
                                         : full.pieces(0, from.rows(), start, length);
    for (Piece& p : pieces) {
      (dim == 0 ? p.row : p.col) += offset;
      param.record(p);
    }
  }

  void fill_zeros(Param& param, Index row, Index rows) {
    require_rows_fit(param.shape(), row, rows);
    param.record({row, 0, rows, param.shape().cols(), zero_rows()});
  }

  /// Of every token id, each once and in order, so that index i of a coverage is id i. What a rank
  /// reads for id i is row i, or another row; each such set is a value of its own.
  [[nodiscard]] Tensor lookup(const Param& table, const std::vector<Index>& rows) {
    return detail::Lookup(*context_, tp_rank_)(table, rows);
  }
  /// Of a lookup: the ids of the others are left out.
  [[nodiscard]] Tensor keep_tokens(const Tensor& x, const std::vector<bool>& keep) const {
    Runs kept;
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i]) kept.append({static_cast<Index>(i), 1, 1});
    Tensor out{x.tokens, {}, tp_rank_};
    for (ColumnRun run : x.columns) {
      for (Term& t : run.terms) {
        if (values().node(t.value).op == ValueOp::lookup)
          require_keep_fits(t.summed.extent(), keep);
        else
          t = {values().unknown("some tokens of a value", run.length), 0, 1, Coverage::whole(1)};
        if (known(t.value)) t.summed = t.summed.within(kept);
      }
      std::erase_if(run.terms, [](const Term& t) { return t.summed.segments().empty(); });
      out.append(std::move(run));
    }
    return out;
  }

  [[nodiscard]] Tensor linear(const Tensor& x, const Param& w) {
    const Shape s = w.shape();
    require_equal("linear: columns of x and of the weight", x.width(), s.cols());
    context_->cost(tp_rank_).flops += 2 * x.tokens.size() * s.size();
    return detail::Product(*context_, tp_rank_)(x, w);
  }

  [[nodiscard]] Tensor add_bias(const Tensor& y, const Param& bias) {
    require_equal("add_bias: columns and bias", y.width(), bias.shape().rows());
    const std::vector<RowSource> rows = bias.row_sources();
    Tensor addend{y.tokens, {}, tp_rank_};  // the bias as a tensor
    for (const RowSource& source : rows) {
      if (!source.tensor) addend.append(unknown("unwritten rows of " + bias.name(), source.rows));
      if (is_zeros(source.tensor)) {
        addend.append({source.rows, {}});
        continue;
      }
      for (const Run& run : source.src_rows)
        addend.append({run.length,
                       {{values().bias(source.tensor), run.begin, run.stride,
                         Coverage::whole(1, bias.scale())}}});
    }
    Tensor out{y.tokens, {}, tp_rank_};
    const std::vector<const Tensor*> both{&y, &addend};
    for_each_stretch(both, [&](Index n, const auto& at) {
      ColumnRun run = at[0].run->part(at[0].offset, n);
      const ColumnRun b = at[1].run->part(at[1].offset, n);
      if (!known(b)) return out.append(known(run) ? b : run);
      if (known(run)) {
        if (const auto apart = meet_apart(run, b, '+')) return out.append(*apart);
        check_bias(run, b);
      }
      add_terms(run, b);
      out.append(std::move(run));
    });
    return out;
  }

  /// Element by element; partial products may be added before their sum over the ranks.
  [[nodiscard]] Tensor add(const Tensor& a, const Tensor& b) {
    require_equal("add: columns", a.width(), b.width());
    if (!same_tokens(a, b, "add")) return unknown_like(a, "a sum of different tokens");
    Tensor out{a.tokens, {}, tp_rank_};
    const std::vector<const Tensor*> both{&a, &b};
    for_each_stretch(both, [&](Index n, const auto& at) {
      ColumnRun l = at[0].run->part(at[0].offset, n);
      const ColumnRun r = at[1].run->part(at[1].offset, n);
      if (const auto apart = meet_apart(l, r, '+')) return out.append(*apart);
      if (!meet(read_column(values(), l), read_column(values(), r), "added to"))
        return out.append(unknown("a sum of different columns", n));
      add_terms(l, r);
      out.append(std::move(l));
    });
    return out;
  }

  /// A norm goes on from the sum without rounding it: here that is the same.
  [[nodiscard]] Tensor add_unrounded(const Tensor& a, const Tensor& b) { return add(a, b); }
  [[nodiscard]] Tensor rounded(const Tensor& x) const { return x; }

  [[nodiscard]] Tensor silu(const Tensor& x) { return activation(ValueOp::silu, "silu", x); }
  [[nodiscard]] Tensor gelu(const Tensor& x) { return activation(ValueOp::gelu, "gelu", x); }
  [[nodiscard]] Tensor gelu_tanh(const Tensor& x) {
    return activation(ValueOp::gelu_tanh, "gelu_tanh", x);
  }

  [[nodiscard]] Tensor column_sums(const Tensor& x, Index group) const {
    return detail::Statistics(*context_, tp_rank_).sums(ValueOp::column_sum, x, group);
  }
  [[nodiscard]] Tensor square_sums(const Tensor& x, Index group) const {
    return detail::Statistics(*context_, tp_rank_).sums(ValueOp::square_sum, x, group);
  }
  [[nodiscard]] Tensor centered(const Tensor& x, const Tensor& sums, Index count) const {
    return detail::Statistics(*context_, tp_rank_).centered(x, sums, count);
  }
  [[nodiscard]] Tensor rms_normalized(const Tensor& x, const Tensor& squares, Index count,
                                      double eps) const {
    return detail::Statistics(*context_, tp_rank_).rms_normalized(x, squares, count, eps);
  }
  [[nodiscard]] Tensor mul_columns(const Tensor& x, const Param& w) const {
    return detail::ColumnWeight(*context_, tp_rank_)(x, w);
  }
  [[nodiscard]] Tensor rope(const Tensor& x, const std::vector<Index>& positions, Index head_dim,
                            const RopeSpec& spec) const {
    return detail::Rotary(*context_, tp_rank_)(x, positions, head_dim, spec);
  }
  [[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionSpec& spec, const Param* sinks) const {
    return detail::Attention(*context_, tp_rank_)(q, k, v, spec, sinks);
  }

  [[nodiscard]] Tensor largest(const Tensor& x, Index first_id) const {
    return detail::Argmax(*context_, tp_rank_).largest(x, first_id);
  }
  [[nodiscard]] Tensor best_of(const Tensor& pairs) const {
    return detail::Argmax(*context_, tp_rank_).best_of(pairs);
  }

  /// Linear in each operand: one of them may be a partial value, the product then is one too.
  [[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b) {
    require_equal("mul: columns", a.width(), b.width());
    if (!same_tokens(a, b, "mul")) return unknown_like(a, "a product of different tokens");
    Tensor out{a.tokens, {}, tp_rank_};
    const std::vector<const Tensor*> both{&a, &b};
    for_each_stretch(both, [&](Index n, const auto& at) {
      out.append(product(at[0].run->part(at[0].offset, n), at[1].run->part(at[1].offset, n)));
    });
    return out;
  }

  /// Every element `factor` times.
  [[nodiscard]] Tensor scale(const Tensor& x, Rational factor) const {
    Tensor out{x.tokens, {}, tp_rank_};
    for (ColumnRun run : x.columns) {
      if (known(run)) {
        for (Term& t : run.terms) t.summed = t.summed.scaled(factor);
        std::erase_if(run.terms, [](const Term& t) { return t.summed.segments().empty(); });
      }
      out.append(std::move(run));
    }
    return out;
  }
  /// Every element over the square root of the integer n: another n is another value.
  [[nodiscard]] Tensor divide_by_sqrt(const Tensor& x, Index n) const {
    Tensor out{x.tokens, {}, tp_rank_};
    for (ColumnRun run : x.columns) {
      if (known(run))
        for (Term& t : run.terms) t.value = values().over_sqrt(t.value, n);
      out.append(std::move(run));
    }
    return out;
  }
  [[nodiscard]] Param scale(Param w, Rational factor) const {
    w.set_scale(w.scale() * factor);
    return w;
  }

  [[nodiscard]] Tensor slice(const Tensor& x, int dim, Index start, Index length) const {
    const Index extent = dim == 0 ? x.tokens.size() : x.width();
    if (start < 0 || length < 0 || start > extent - length)
      throw LayoutError("a slice reads outside its tensor",
                        {{"cover", "entries " + Runs::range(start, start + length).str() + " of " +
                                       std::to_string(extent)}});
    if (dim == 0) return {x.tokens.slice(start, length), x.columns, x.rank};
    Tensor out{x.tokens, {}, x.rank};
    for (ColumnRun& run : columns_of(x, start, length)) out.append(std::move(run));
    return out;
  }

  [[nodiscard]] Tensor concat(std::span<const Tensor* const> parts, int dim) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return *parts[0];
    Tensor out{parts[0]->tokens, {}, common_rank(parts)};
    bool joint = true;
    for (const Tensor* part : parts.subspan(1)) {
      if (dim == 1) {
        joint = same_tokens(*parts[0], *part, "concat") && joint;
      } else {
        require_equal("concat of tokens: columns", parts[0]->width(), part->width());
        joint = same_columns(*parts[0], *part) && joint;
        out.tokens.append(part->tokens);
      }
    }
    if (dim == 0) {
      out.columns = parts[0]->columns;
    } else {
      for (const Tensor* part : parts)
        for (const ColumnRun& run : part->columns) out.append(run);
    }
    return joint ? out : unknown_like(out, "columns of different tokens");
  }

  /// Of a rank's own tensors: their sum is an addition, with nothing to say about ranks.
  [[nodiscard]] Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
    bool own = op == Reduction::sum && !parts.empty();  // tests reduce the tensors of several ranks
    for (const Tensor* part : parts) own = own && (part->rank == tp_rank_ || part->rank < 0);
    if (!own) return reduce_ranks(op, parts);
    Tensor out = *parts[0];
    for (const Tensor* part : parts.subspan(1)) out = add(out, *part);
    return out;
  }
  /// What a reducing collective does with one tensor of each rank.
  [[nodiscard]] Tensor reduce_ranks(Reduction op, std::span<const Tensor* const> parts) {
    if (parts.empty()) return {};
    if (parts.size() == 1) return *parts[0];
    bool joint = true;
    for (const Tensor* part : parts.subspan(1)) {
      require_equal("reduce: columns", parts[0]->width(), part->width());
      joint = joint && same_tokens(*parts[0], *part, "reduce");
    }
    if (!joint) return unknown_like(*parts[0], "a reduction of different tokens");
    Tensor out{parts[0]->tokens, {}, common_rank(parts)};
    std::vector<int> ranks;
    for (std::size_t i = 0; i < parts.size(); ++i)
      ranks.push_back(parts[i]->rank >= 0 ? parts[i]->rank : static_cast<int>(i));
    std::vector<ColumnRun> runs(parts.size());
    for_each_stretch(parts, [&](Index n, const auto& at) {
      for (std::size_t i = 0; i < parts.size(); ++i) runs[i] = at[i].run->part(at[i].offset, n);
      out.append(op == Reduction::sum ? detail::SumOfParts(*context_, runs, ranks).result()
                                      : largest(runs));
    });
    return out;
  }

 private:
  static void require_equal(std::string_view what, Index a, Index b) {
    if (a != b)
      throw LayoutError("sizes do not fit",
                        {{"partners", std::string(what) + " are " + std::to_string(a) + " and " +
                                          std::to_string(b)}});
  }

  // Functions of one element that are 0 at 0.
  [[nodiscard]] Tensor activation(ValueOp op, std::string_view reader, const Tensor& x) const {
    Tensor out{x.tokens, {}, tp_rank_};
    for (const ColumnRun& run : x.columns) {
      const Column c = read_whole(run, reader);
      out.append(run.terms.empty() ? run : whole(values().activation(op, c.value), c));
      context_->cost(tp_rank_).oracle_calls += x.tokens.size() * run.length;
    }
    return out;
  }
  [[nodiscard]] Tensor unknown_like(const Tensor& x, std::string label) const {
    Tensor out{x.tokens, {}, x.rank};
    out.append(unknown(std::move(label), x.width()));
    return out;
  }
  static int common_rank(std::span<const Tensor* const> parts) {
    for (const Tensor* part : parts)
      if (part->rank != parts[0]->rank) return -1;
    return parts[0]->rank;
  }
  // The maximum of equal whole values is that value; of others nothing is known.
  [[nodiscard]] ColumnRun largest(const std::vector<ColumnRun>& parts) const {
    bool equal = true, all_known = true;
    for (const ColumnRun& part : parts) {
      equal = equal && same_terms(part, parts[0]) && read_column(values(), part).complete;
      all_known = all_known && known(part);
    }
    if (equal) return parts[0];
    if (all_known && tp_rank_ >= 0)
      report("state", context_->name(read_column(values(), parts[0]).value),
             "the maximum is taken of different or partial values: " +
                 describe(*context_, parts[0]) + " and others",
             "a maximum where a sum belongs", "reduce partial products with sum");
    return unknown("a maximum of different values", parts[0].length);
  }
};

static_assert(DecoderBackend<SymbolicBackend> && BackendHasArgmax<SymbolicBackend>);

}  // namespace tpsim
