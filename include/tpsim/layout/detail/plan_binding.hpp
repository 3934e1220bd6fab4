// SPDX-License-Identifier: MIT
// Working a plan out: expressions to layouts, rules to cuts, names to parameters, and all that is
// wrong with it.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include <tpsim/core/text.hpp>
#include <tpsim/layout/expression.hpp>
#include <tpsim/layout/plan.hpp>

namespace tpsim {
namespace detail {

[[nodiscard]] inline Index product(const std::vector<AxisExtent>& axes, std::size_t from = 0) {
  Index n = 1;
  for (std::size_t i = from; i < axes.size(); ++i) n *= axes[i].extent;
  return n;
}

/// "self_attn.q_proj.weight" -> "self_attn.", "q_proj", "weight".
struct TensorName {
  std::string path, layer, leaf;
};
[[nodiscard]] inline TensorName split_name(const std::string& name) {
  const std::size_t leaf = name.rfind('.');
  if (leaf == std::string::npos) return {"", "", name};
  const std::size_t layer = leaf == 0 ? std::string::npos : name.rfind('.', leaf - 1);
  const std::size_t begin = layer == std::string::npos ? 0 : layer + 1;
  return {name.substr(0, begin), name.substr(begin, leaf - begin), name.substr(leaf + 1)};
}

/// The pieces between commas, without blanks at their ends.
[[nodiscard]] inline std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> out = split(text, ",");
  for (std::string& piece : out) {
    piece.erase(0, std::min(piece.find_first_not_of(' '), piece.size()));
    piece.erase(piece.find_last_not_of(' ') + 1);
  }
  return out;
}

class PlanBinder {
 public:
  explicit PlanBinder(const Plan& plan) : plan_(plan) {}

  [[nodiscard]] BoundPlan bind() {
    BoundPlan out{plan_, {}, {}, {}};
    if (plan_.tensors.empty()) broken("cover", "the plan has no tensor");
    if (plan_.outputs.empty()) broken("cover", "the plan has no output");
    std::set<std::string> names;
    for (const PlanTensor& t : plan_.tensors) {
      if (!names.insert(t.name).second) broken("names", "tensor " + t.name + " is there twice");
      attempt(t.name, [&] { out.tensors.push_back(tensor(t)); });
    }
    params(out.tensors);
    attempt("input", [&] { out.input = value(plan_.input, "input"); });
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k)
      attempt("output " + std::to_string(k), [&] {
        out.outputs.push_back(value(plan_.outputs[k], "output " + std::to_string(k)));
      });
    if (!broken_.empty())
      throw LayoutError("the plan cannot be used", std::move(broken_),
                        "its axes are " + or_none(describe(plan_.axes)));
    return out;
  }

 private:
  void broken(const std::string& rule, const std::string& message) {
    broken_.push_back({rule, message});
  }
  static std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

  /// What an expression or a cut refuses belongs to `who`.
  template <class Action>
  void attempt(const std::string& who, Action action) {
    try {
      action();
    } catch (const LayoutError& e) {
      for (const Violation& v : e.violations()) broken(v.rule, who + ": " + v.message);
      if (e.violations().empty()) broken("names", who + ": " + e.subject());
    }
  }

  [[nodiscard]] std::vector<AxisExtent> plain(const std::string& text) const {
    const LayoutExpr expr = LayoutExpr::parse(text);
    std::vector<LabelAxes> parts = label_axes(expr, plan_.axes);
    if (parts.size() != 1 || !parts[0].label.empty())
      throw LayoutError("columns '" + text + "' are a product of axes, without labels");
    return std::move(parts[0].axes);
  }

  [[nodiscard]] BoundTensor tensor(const PlanTensor& t) {
    BoundTensor out;
    out.name = t.name;
    const TensorName name = inside(t);
    out.param = t.into.empty() && t.fills.empty()
                    ? t.name
                    : name.path + (t.fills.empty() ? t.into : name.layer) + "." + name.leaf;
    if (!t.into.empty() && !t.fills.empty())
      broken("names", t.name + ": 'into' and 'fills' both name the layer");
    if (t.style == "column")
      out.tp_dim = 0;
    else if (t.style == "row")
      out.tp_dim = 1;
    else if (t.style != "replicated")
      broken("names", t.name + ": there is no style '" + t.style + "': column, row or replicated");
    out.rank = t.cols.empty() ? 1 : 2;
    if (out.tp_dim == 1 && out.rank == 1)
      broken("names", t.name + ": style row cuts columns, and a bias has none");
    if (out.rank == 2) attempt(t.name + " cols", [&] { out.cols = plain(t.cols); });

    const LayoutExpr rows = LayoutExpr::parse(t.rows);
    out.layout = bind_layout(rows, plan_.axes);
    for (LabelAxes& part : label_axes(rows, plan_.axes)) {
      const bool fused = out.layout.parts().size() > 1 || (!t.fills.empty() && !part.label.empty());
      out.parts.push_back({part.label,
                           fused             ? name.path + part.label + "_proj." + name.leaf
                           : t.fills.empty() ? t.name
                                             : out.param,
                           out.tp_dim == 1 ? out.cols : std::move(part.axes),
                           {}});
    }
    attempt(t.name + " cut", [&] { cuts(t, out); });
    return out;
  }

  /// Its name in the module: that of the checkpoint, unless `fills` says otherwise.
  [[nodiscard]] static TensorName inside(const PlanTensor& t) {
    const TensorName name = split_name(t.name);
    return t.fills.empty() ? name
                           : split_name(t.fills + (name.leaf == "bias" ? ".bias" : ".weight"));
  }

  /// A rule for every part: one for all, or each with its label.
  void cuts(const PlanTensor& t, BoundTensor& out) {
    if (!out.tp_dim) {
      for (std::size_t k = 0; k < out.parts.size(); ++k) out.order.push_back(k);
      if (!t.cut.empty() && t.cut != "whole")
        broken("names", t.name + ": style replicated has no cut, not '" + t.cut + "'");
      return;
    }
    if (t.cut.empty()) return broken("names", t.name + ": style " + t.style + " needs a cut");
    std::set<std::string> labels;  // "" when one rule is for all
    for (const std::string& rule : comma_list(t.cut)) {
      const std::size_t colon = rule.find(':');
      const std::string label = colon == std::string::npos ? "" : rule.substr(0, colon);
      const Cut cut = Cut::parse(colon == std::string::npos ? rule : rule.substr(colon + 1));
      if (labels.count("") > 0 || (label.empty() && !labels.empty()) ||
          !labels.insert(label).second)
        throw LayoutError("the cut '" + t.cut + "' has two rules for one part");
      bool used = false;
      for (std::size_t k = 0; k < out.parts.size(); ++k) {
        if (!label.empty() && out.parts[k].label != label) continue;
        out.parts[k].cut = cut;
        out.order.push_back(k);
        used = true;
      }
      if (!used) broken("names", t.name + ": the rows have no part '" + label + "'");
    }
    for (const PlanPart& part : out.parts) {
      if (labels.count("") == 0 && labels.count(part.label) == 0)
        broken("names", t.name + ": the cut has no rule for part " + part.label);
      else
        check_cut(t.name, part.cut, part.axes);
    }
  }
  /// What is wrong with the rule at any tp.
  void check_cut(const std::string& who, const Cut& cut, const std::vector<AxisExtent>& axes) {
    if (cut.rule != CutRule::whole && cut.rule != CutRule::even && cut.rule != CutRule::replicated)
      broken("names", who + ": cut '" + cut.str() +
                          "' gives ranks unequal parts or padding, which modules cannot have yet: "
                          "even, replicated or whole");
    for (const Violation& v : cut_violations(cut, axes, 1)) broken(v.rule, who + ": " + v.message);
  }

  /// Tensors of one parameter: alike in style and columns, told apart by labels.
  void params(const std::vector<BoundTensor>& tensors) {
    std::map<std::string, const BoundTensor*> first;
    std::map<std::string, std::set<std::string>> labels;
    std::set<std::string> logical;
    for (const BoundTensor& t : tensors) {
      const BoundTensor* other = first.emplace(t.param, &t).first->second;
      const std::string both = other->name + " and " + t.name + " both go into " + t.param;
      if (other->tp_dim != t.tp_dim || other->rank != t.rank)
        broken("names", both + ", but differ in style or number of dimensions");
      else if (product(other->cols) != product(t.cols))
        broken("cover", both + ", but have " + std::to_string(product(other->cols)) + " and " +
                            std::to_string(product(t.cols)) + " columns");
      for (const PlanPart& part : t.parts) {
        if (other != &t && part.label.empty())
          broken("names", both + ": label their rows, as in 'q:" + str(part.axes) + "'");
        else if (!labels[t.param].insert(part.label).second)
          broken("names", "part '" + part.label + "' of " + t.param + " is there twice");
        if (!logical.insert(part.tensor).second && part.tensor != t.name)
          broken("names", t.name + ": its part is called " + part.tensor + ", as another is");
      }
    }
  }

  [[nodiscard]] BoundValue value(const PlanValue& v, const std::string& who) {
    BoundValue out;
    const bool is_cut = !v.cut.empty() || v.cols.find(' ') != std::string::npos;
    if (is_cut) out.cut = Cut::parse(v.cut.empty() ? v.cols : v.cut);
    out.cols = plain(!v.cut.empty() || !is_cut ? v.cols : joined(out.cut.axes));
    check_cut(who, out.cut, out.cols);
    return out;
  }
  static std::string joined(const std::vector<std::string>& axes) {
    std::string out;
    for (const std::string& axis : axes) out += (out.empty() ? "" : "*") + axis;
    return out;
  }

  const Plan& plan_;
  std::vector<Violation> broken_;
};

}  // namespace detail

inline Index PlanPart::unit() const {
  return cut.rule == CutRule::whole ? 1 : detail::product(axes, cut.axes.size());
}
inline Shape BoundTensor::shape_of(Index rows) const {
  return rank == 1 ? Shape(rows) : Shape(rows, detail::product(cols));
}
inline Index BoundValue::width() const { return detail::product(cols); }

inline BoundPlan bind_plan(const Plan& plan) { return detail::PlanBinder(plan).bind(); }

inline std::vector<Violation> violations(const BoundPlan& plan, int tp) {
  if (tp < 1) return {{"divide", "tp is " + std::to_string(tp) + ", it must be positive"}};
  std::vector<Violation> all;
  std::vector<std::string> who;
  const auto look = [&](const std::string& name, const Cut& cut,
                        const std::vector<AxisExtent>& axes) {
    for (const Violation& v : cut_violations(cut, axes, tp)) {
      const auto known = std::find(all.begin(), all.end(), v);
      if (known == all.end()) {
        all.push_back(v);
        who.push_back(name);
      } else if (std::string& names = who[static_cast<std::size_t>(known - all.begin())];
                 names.find(name) == std::string::npos) {
        names += ", " + name;
      }
    }
  };
  for (const BoundTensor& t : plan.tensors)
    for (const PlanPart& part : t.parts) look(part.tensor, part.cut, part.axes);
  look("input", plan.input.cut, plan.input.cols);
  for (const BoundValue& v : plan.outputs) look("output", v.cut, v.cols);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].message += " (" + who[i] + ")";
  return all;
}

inline std::vector<int> legal_tp(const BoundPlan& plan, int most) {
  std::vector<int> legal;
  for (int tp = 1; tp <= most; ++tp)
    if (violations(plan, tp).empty()) legal.push_back(tp);
  return legal;
}

inline void require_legal(const BoundPlan& plan, int tp) {
  std::vector<Violation> broken = violations(plan, tp);
  if (broken.empty()) return;
  throw LayoutError("tp " + std::to_string(tp) + " cannot split this module", std::move(broken),
                    "tp can be " + or_list(legal_tp(plan, 512)));
}

}  // namespace tpsim
