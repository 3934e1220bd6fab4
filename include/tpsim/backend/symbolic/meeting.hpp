// SPDX-License-Identifier: MIT
// Operands that meet: do they hold the same tokens and columns, and what comes of it.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tpsim/backend/symbolic/symbolic_rank.hpp>

namespace tpsim::detail {

/// The rules of one rank's element-wise operations.
class Meeting : protected SymbolicRank {
 protected:
  using SymbolicRank::SymbolicRank;

  // Part of a name that a weight shares with its bias: "q_proj" of "q_proj.weight".
  static std::string_view family(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
  }
  // A bias belongs to the product of its own weight, at its own rows; beside that product others
  // may stand in the sum (attention and MLP that are reduced together).
  void check_bias(const ColumnRun& y, const ColumnRun& b) const {
    if (b.terms.empty()) return;  // zeros
    const Term& bias = b.terms.front();
    const ValueNode& added = values().node(bias.value);
    if (added.op != ValueOp::bias) return;
    const Term* other = nullptr;  // a product that the bias does not belong to
    for (const Term& t : y.terms) {
      const ValueNode& product = values().node(t.value);
      if (product.op != ValueOp::linear) continue;
      const bool same_rows = t.begin == bias.begin && t.stride == bias.stride;
      if (same_rows && family(product.tensor->name) == family(added.tensor->name)) return;
      if (same_rows && context_->may_meet(tp_rank_, 'b', product.tensor->key, added.tensor->key, 0))
        return;
      if (other == nullptr) other = &t;
    }
    if (other == nullptr) return;
    const auto rows = [&](const Term& term) {
      Runs r;
      r.append({term.begin, y.length, term.stride});
      return r.str();
    };
    report("partners", added.tensor->name,
           "rows " + rows(bias) + " of " + added.tensor->name + " are added to rows " +
               rows(*other) + " of " + values().node(other->value).tensor->name,
           "the bias and the weight are cut by different rules",
           "cut the bias like the rows of its weight");
  }
  static void add_terms(ColumnRun& y, const ColumnRun& more) {
    for (const Term& t : more.terms) {
      const auto same = std::find_if(y.terms.begin(), y.terms.end(), [&](const Term& u) {
        return u.value == t.value && u.begin == t.begin && u.stride == t.stride && u.adds_to(t);
      });
      if (same != y.terms.end()) {
        const std::vector<const Coverage*> both{&same->summed, &t.summed};
        if (same->summed.uniform()) same->over = t.over;
        same->summed = Coverage::sum(both);
      } else {
        y.terms.push_back(t);
      }
    }
    std::erase_if(y.terms, [](const Term& t) { return t.summed.segments().empty(); });
    sort_terms(y);
  }

  [[nodiscard]] ColumnRun product(const ColumnRun& a, const ColumnRun& b) const {
    if (a.terms.empty() || b.terms.empty()) return {a.length, {}};  // nothing but zeros
    const bool one_partial = read_column(values(), a).complete != read_column(values(), b).complete;
    const Column l = one_partial ? read_column(values(), a) : read_whole(a, "mul");
    const Column r = one_partial ? read_column(values(), b) : read_whole(b, "mul");
    if (!one_partial && shares_columns(l, r))
      return whole(values().shifted_mul(l.value, r.value, l.begin - r.begin), l);
    if (!one_partial && shares_columns(r, l))
      return whole(values().shifted_mul(r.value, l.value, r.begin - l.begin), r);
    if (const auto apart = meet_apart(a, b, '*')) return *apart;
    if (!meet(l, r, "multiplied by")) return unknown("a product of different columns", a.length);
    const SumTerm x = values().multiple(l.value), y = values().multiple(r.value);
    if (!one_partial) return whole(values().mul(x.value, y.value), l, x.coef * y.coef);
    const SumTerm factor = l.complete ? x : y;
    ColumnRun terms = l.complete ? b : a, out{a.length, {}};
    for (Term& t : terms.terms) {
      t.value = values().mul(t.value, factor.value);
      t.summed = t.summed.scaled(factor.coef);
    }
    add_terms(out, terms);
    return out;
  }
  // Whole columns that meet at the distance at which full() lets them meet.
  [[nodiscard]] std::optional<ColumnRun> meet_apart(const ColumnRun& a, const ColumnRun& b,
                                                    char kind) const {
    if (a.terms.empty() || b.terms.empty()) return std::nullopt;
    Column l = read_column(values(), a), r = read_column(values(), b);
    if (!l.complete || !r.complete || !known(l.value) || !known(r.value) || l.stride != r.stride)
      return std::nullopt;
    if (r.value < l.value || (l.value == r.value && l.begin < r.begin)) std::swap(l, r);
    const Index distance = l.begin - r.begin;
    if (distance == 0 && values().node(l.value).width == values().node(r.value).width)
      return std::nullopt;
    if (!context_->may_meet(tp_rank_, kind, static_cast<std::uint64_t>(l.value),
                            static_cast<std::uint64_t>(r.value), distance))
      return std::nullopt;
    return whole(kind == '*' ? values().shifted_mul(l.value, r.value, distance)
                             : values().shifted_sum(l.value, r.value, distance),
                 l);
  }
  // Is `narrow` a value whose columns several columns of `wide` share, as query heads their kv
  // head? Which column meets which is then part of the product, for full() to judge.
  [[nodiscard]] bool shares_columns(const Column& wide, const Column& narrow) const {
    if (!known(wide.value) || !known(narrow.value)) return false;
    const Index n = values().node(wide.value).width, m = values().node(narrow.value).width;
    return n > m && n % m == 0 && wide.stride == narrow.stride;
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
  [[nodiscard]] bool same_tokens(const SymbolicTensor& a, const SymbolicTensor& b,
                                 std::string_view what) const {
    if (a.tokens == b.tokens) return true;
    report("state", "",
           std::string(what) + " of different tokens: " + a.tokens.str() + " and " + b.tokens.str(),
           "the ranks hold different tokens", "gather the tokens first");
    return false;
  }
  [[nodiscard]] bool same_columns(const SymbolicTensor& a, const SymbolicTensor& b) const {
    bool equal = true, all_known = true;
    const std::vector<const SymbolicTensor*> both{&a, &b};
    for_each_stretch(both, [&](Index n, const auto& at) {
      const ColumnRun l = at[0].run->part(at[0].offset, n), r = at[1].run->part(at[1].offset, n);
      equal = equal && same_terms(l, r);
      all_known = all_known && known(l) && known(r);
    });
    if (equal || !all_known) return equal;  // of an unknown value everything was said before
    const bool turned = rotated(a) && rotated(b);
    report("state", "",
           "tokens are joined that hold different columns: " + describe(*context_, a) + " and " +
               describe(*context_, b),
           turned ? "the positions of some tokens do not follow those of the others"
                  : "a gather of tokens where one of columns belongs",
           turned ? "a later token's position is the number of tokens before it"
                  : "join columns along dim 1");
    return false;
  }
  [[nodiscard]] bool rotated(const SymbolicTensor& x) const {
    return std::any_of(x.columns.begin(), x.columns.end(), [&](const ColumnRun& run) {
      return values().node(read_column(values(), run).value).op == ValueOp::rope;
    });
  }
  static bool same_terms(const ColumnRun& l, const ColumnRun& r) {
    return std::equal(l.terms.begin(), l.terms.end(), r.terms.begin(), r.terms.end(),
                      [](const Term& s, const Term& t) {
                        return s.value == t.value && s.begin == t.begin && s.stride == t.stride &&
                               s.summed == t.summed;
                      });
  }
};

}  // namespace tpsim::detail
