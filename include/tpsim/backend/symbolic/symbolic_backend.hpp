// SPDX-License-Identifier: MIT
// The static reading: tensors that say what they stand for, and no numbers.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/backend.hpp>
#include <tpsim/backend/symbolic/context.hpp>
#include <tpsim/backend/symbolic/placement.hpp>
#include <tpsim/backend/symbolic/product.hpp>
#include <tpsim/backend/symbolic/reduce.hpp>
#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim {

/// Runs a layer on logical values. An operation that its inputs do not allow (a partial operand,
/// partners that are cut differently, a sum that counts twice) is a finding of the context; its
/// result is an unknown value, about which nothing further is reported.
/// @throws LayoutError for sizes that no engine could multiply, add or cut
class SymbolicBackend : private detail::SymbolicRank {
 public:
  using Tensor = SymbolicTensor;
  using Param = SymbolicParam;

  /// @param tp_rank  whose code runs here; -1 for the reference, full()
  SymbolicBackend(SymbolicContext& context, int tp_rank) : SymbolicRank(context, tp_rank) {}

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
      if (!known(run) || !known(b)) return out.append(known(run) ? b : run);
      check_bias(run, b);
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
      if (!meet(read_column(values(), l), read_column(values(), r), "added to"))
        return out.append(unknown("a sum of different columns", n));
      add_terms(l, r);
      out.append(std::move(l));
    });
    return out;
  }

  [[nodiscard]] Tensor silu(const Tensor& x) {
    Tensor out{x.tokens, {}, tp_rank_};
    for (const ColumnRun& run : x.columns) {
      const Column c = read_whole(run, "silu");
      out.append(whole(values().silu(c.value), c));
      context_->cost(tp_rank_).oracle_calls += x.tokens.size() * run.length;
    }
    return out;
  }

  [[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b) {
    require_equal("mul: columns", a.width(), b.width());
    if (!same_tokens(a, b, "mul")) return unknown_like(a, "a product of different tokens");
    Tensor out{a.tokens, {}, tp_rank_};
    const std::vector<const Tensor*> both{&a, &b};
    for_each_stretch(both, [&](Index n, const auto& at) {
      const Column l = read_whole(at[0].run->part(at[0].offset, n), "mul");
      const Column r = read_whole(at[1].run->part(at[1].offset, n), "mul");
      out.append(meet(l, r, "multiplied by") ? whole(values().mul(l.value, r.value), l)
                                             : unknown("a product of different columns", n));
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
    for (const ColumnRun& run : x.columns) {
      const Index skip = std::min(start, run.length);
      const Index take = std::min(length, run.length - skip);
      if (take > 0) out.append(run.part(skip, take));
      start -= skip;
      length -= take;
    }
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

  [[nodiscard]] Tensor reduce(Reduction op, std::span<const Tensor* const> parts) {
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
  // Part of a name that a weight shares with its bias: "q_proj" of "q_proj.weight".
  static std::string_view family(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
  }
  void check_bias(const ColumnRun& y, const ColumnRun& b) const {
    const Term& bias = b.terms.front();
    for (const Term& t : y.terms) {
      const ValueNode &product = values().node(t.value), &added = values().node(bias.value);
      if (product.op != ValueOp::linear || added.op != ValueOp::bias) continue;
      const bool paired = family(product.tensor->name) == family(added.tensor->name);
      if (paired && t.begin == bias.begin && t.stride == bias.stride) continue;
      const auto rows = [&](const Term& term) {
        Runs r;
        r.append({term.begin, y.length, term.stride});
        return r.str();
      };
      report("partners", added.tensor->name,
             "rows " + rows(bias) + " of " + added.tensor->name + " are added to rows " + rows(t) +
                 " of " + product.tensor->name,
             "the bias and the weight are cut by different rules",
             "cut the bias like the rows of its weight");
      return;
    }
  }
  static void add_terms(ColumnRun& y, const ColumnRun& more) {
    for (const Term& t : more.terms) {
      const auto same = std::find_if(y.terms.begin(), y.terms.end(), [&](const Term& u) {
        return u.value == t.value && u.begin == t.begin && u.stride == t.stride;
      });
      if (same != y.terms.end()) {
        const std::vector<const Coverage*> both{&same->summed, &t.summed};
        same->summed = Coverage::sum(both);
      } else {
        y.terms.push_back(t);
      }
    }
    std::erase_if(y.terms, [](const Term& t) { return t.summed.segments().empty(); });
    std::sort(y.terms.begin(), y.terms.end(), [](const Term& l, const Term& r) {
      return std::pair(l.value, l.begin) < std::pair(r.value, r.begin);
    });
  }

  // Do two operands hold the same columns? Unknown ones are not reported again.
  [[nodiscard]] bool meet(const Column& l, const Column& r, std::string_view how) const {
    if (!known(l.value) || !known(r.value)) return false;
    const bool wide = values().node(l.value).width == values().node(r.value).width;
    if (wide && l.begin == r.begin && l.stride == r.stride) return true;
    const auto columns = [&](const Column& c) {
      Runs runs;
      runs.append({c.begin, c.length, c.stride});
      return "columns " + runs.str() + " of " + context_->name(c.value);
    };
    report("partners", context_->name(l.value),
           columns(l) + " are " + std::string(how) + " " + columns(r),
           "the two operands (gate and up, say) are cut by different rules",
           "cut both with the same offset and length");
    return false;
  }
  [[nodiscard]] bool same_tokens(const Tensor& a, const Tensor& b, std::string_view what) const {
    if (a.tokens == b.tokens) return true;
    report("state", "",
           std::string(what) + " of different tokens: " + a.tokens.str() + " and " + b.tokens.str(),
           "the ranks hold different tokens", "gather the tokens first");
    return false;
  }
  [[nodiscard]] bool same_columns(const Tensor& a, const Tensor& b) const {
    bool equal = true;
    const std::vector<const Tensor*> both{&a, &b};
    for_each_stretch(both, [&](Index n, const auto& at) {
      const ColumnRun l = at[0].run->part(at[0].offset, n), r = at[1].run->part(at[1].offset, n);
      equal = equal && same_terms(l, r);
    });
    if (!equal)
      report("state", "",
             "tokens are joined that hold different columns: " + describe(*context_, a) + " and " +
                 describe(*context_, b),
             "a gather of tokens where one of columns belongs", "join columns along dim 1");
    return equal;
  }
  static bool same_terms(const ColumnRun& l, const ColumnRun& r) {
    return std::equal(l.terms.begin(), l.terms.end(), r.terms.begin(), r.terms.end(),
                      [](const Term& s, const Term& t) {
                        return s.value == t.value && s.begin == t.begin && s.stride == t.stride &&
                               s.summed == t.summed;
                      });
  }
  // The maximum of equal whole values is that value; of others nothing is known.
  [[nodiscard]] ColumnRun largest(const std::vector<ColumnRun>& parts) const {
    bool equal = true, all_known = true;
    for (const ColumnRun& part : parts) {
      equal = equal && same_terms(part, parts[0]) && read_column(values(), part).complete;
      all_known = all_known && known(part);
    }
    if (equal) return parts[0];
    if (all_known)
      report("state", context_->name(read_column(values(), parts[0]).value),
             "the maximum is taken of different or partial values: " +
                 describe(*context_, parts[0]) + " and others",
             "a maximum where a sum belongs", "reduce partial products with sum");
    return unknown("a maximum of different values", parts[0].length);
  }
};

static_assert(Backend<SymbolicBackend>);

}  // namespace tpsim
