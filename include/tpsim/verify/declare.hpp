// SPDX-License-Identifier: MIT
// Declarations of the linear family: the checkpoint's tensors, and by layout expressions and cut
// rules alone, what every rank must hold, receive and return.
#pragma once

#include <tpsim/core/text.hpp>
#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/expression.hpp>
#include <tpsim/verify/layer_spec.hpp>
#include <tpsim/verify/plan_subject.hpp>
#include <tpsim/verify/subject.hpp>

namespace tpsim {

/// Extents of the axes that a spec's layout expressions may name: kv, g, h, d, m for qkv; i (all
/// parts equal), n0, n1, ... for merged parts.
[[nodiscard]] inline Axes axes_for(const LayerSpec& s) {
  if (s.layer == "qkv")
    return {{"kv", s.qkv.kv_heads},
            {"g", s.qkv.heads / s.qkv.kv_heads},
            {"h", s.qkv.heads},
            {"d", s.qkv.head_dim},
            {"m", s.qkv.v_head()}};
  Axes axes;
  const std::vector<MergedPart> parts = s.layer == "mlp" ? gate_up(s.intermediate) : s.parts;
  bool equal = !parts.empty();
  for (std::size_t k = 0; k < parts.size(); ++k) {
    axes["n" + std::to_string(k)] = parts[k].rows;
    equal = equal && parts[k].rows == parts[0].rows;
  }
  if (equal) axes["i"] = parts[0].rows;
  return axes;
}

namespace detail {

/// One tensor's rows: its label, its layout when it has a tensor of its own, and its cut.
struct PartRule {
  std::string label;  ///< "q"
  std::string rows;   ///< "kv*g*d"
  std::string cut;    ///< "kv*g even"
  Index granule = 1;
  std::string granule_name;
};

class Declaration {
 public:
  Declaration(Subject& subject, const LayerSpec& spec) : subject_(subject), spec_(spec) {}

  /// [rank]: canonical rows under a cut of the axes of `rows`.
  [[nodiscard]] std::vector<Runs> cut(const std::string& rows, const std::string& rule,
                                      const Axes& axes) const {
    const std::vector<AxisExtent> extents = axes_of(LayoutExpr::parse(rows), axes, "");
    std::vector<Runs> out;
    for (int r = 0; r < spec_.tp; ++r)
      out.push_back(cut_rows(Cut::parse(rule), extents, spec_.tp, r).rows);
    return out;
  }
  [[nodiscard]] std::vector<Runs> whole(Index n) const {
    return std::vector<Runs>(static_cast<std::size_t>(spec_.tp), Runs::range(0, n));
  }

  /// A tensor of the checkpoint with its layout; `logical` what its parts stand for.
  void disk(const std::string& name, Shape shape, RowLayout layout, std::vector<Logical> logical,
            const std::string& param) {
    subject_.tensors.push_back(
        disk_tensor(name, shape, std::move(layout), std::move(logical), param, spec_.values));
  }

  /// A weight or bias that has a parameter of its own, cut along `tp_dim`.
  void single(const std::string& param, const std::string& logical_name, Shape shape,
              std::optional<int> tp_dim) {
    const auto logical = std::make_shared<LogicalTensor>(logical_name, shape);
    disk(logical_name, shape, RowLayout({{"", Runs::range(0, shape.rows())}}), {logical}, param);
    DeclaredPart part{logical, "", whole(shape.rows()), whole(shape.cols()), 1, ""};
    if (tp_dim == 0) part.rows = cut("n", "n even", {{"n", shape.rows()}});
    if (tp_dim == 1) part.cols = cut("n", "n even", {{"n", shape.cols()}});
    subject_.params.push_back({param, tp_dim, shape, {std::move(part)}});
  }

  /// A merged parameter PREFIXweight or PREFIXbias of several parts, separate on disk or fused in
  /// the order `fused`; every part is cut by its own rule.
  void merged(const std::string& param, Index cols, const std::vector<PartRule>& rules,
              const std::string& fused, const Axes& axes) {
    const std::string kind = cols == 0 ? "bias" : "weight";
    const auto shape_of = [&](Index rows) { return cols == 0 ? Shape(rows) : Shape(rows, cols); };
    DeclaredParam declared{param, 0, shape_of(0), {}};
    std::vector<Logical> logical;
    for (const PartRule& rule : rules) {
      const RowLayout alone = bind_layout(LayoutExpr::parse(rule.rows), axes);
      const auto tensor =
          std::make_shared<LogicalTensor>(rule.label + "_proj." + kind, shape_of(alone.rows()));
      logical.push_back(tensor);
      declared.parts.push_back({tensor, rule.label, cut(rule.rows, rule.cut, axes),
                                whole(tensor->shape.cols()), rule.granule, rule.granule_name});
      declared.full_shape = declared.full_shape.with(0, declared.full_shape.rows() + alone.rows());
      if (fused.empty())
        disk(tensor->name, tensor->shape, RowLayout({{rule.label, Runs::range(0, alone.rows())}}),
             {tensor}, param);
    }
    if (!fused.empty()) {
      const RowLayout layout = fused_layout(fused, axes, rules, logical);
      std::vector<Logical> in_disk_order;
      for (const RowLayout::Part& part : layout.parts())
        for (std::size_t k = 0; k < rules.size(); ++k)
          if (rules[k].label == part.label) in_disk_order.push_back(logical[k]);
      disk(param, declared.full_shape, layout, in_disk_order, param);
    }
    subject_.params.push_back(std::move(declared));
  }

 private:
  /// @throws LayoutError (names, cover) unless the expression has exactly the layer's parts
  [[nodiscard]] RowLayout fused_layout(const std::string& fused, const Axes& axes,
                                       const std::vector<PartRule>& rules,
                                       const std::vector<Logical>& logical) const {
    RowLayout layout = bind_layout(LayoutExpr::parse(fused), axes);
    std::vector<Violation> broken;
    std::string wanted;
    for (std::size_t k = 0; k < rules.size(); ++k) {
      wanted += (k > 0 ? ", " : "") + rules[k].label;
      Index found = -1;
      for (const RowLayout::Part& part : layout.parts())
        if (part.label == rules[k].label) found = part.disk_rows.size();
      if (found < 0)
        broken.push_back({"names", "part " + rules[k].label + " is missing"});
      else if (found != logical[k]->shape.rows())
        broken.push_back({"cover", "part " + rules[k].label + " has " + std::to_string(found) +
                                       " rows, the layer " +
                                       std::to_string(logical[k]->shape.rows())});
    }
    for (const RowLayout::Part& part : layout.parts()) {
      bool known = false;
      for (const PartRule& rule : rules) known = known || rule.label == part.label;
      if (!known) broken.push_back({"names", "the layer has no part '" + part.label + "'"});
    }
    if (!broken.empty())
      throw LayoutError("the layout '" + fused + "' does not describe this layer",
                        std::move(broken), "its parts are " + wanted);
    return layout;
  }

  Subject& subject_;
  const LayerSpec& spec_;
};

[[nodiscard]] inline std::vector<PartRule> qkv_rules(const QkvShape& q) {
  return {{"q", "kv*g*d", "kv*g even", q.head_dim, "heads"},
          {"k", "kv*d", "kv replicated", q.head_dim, "kv"},
          {"v", "kv*m", "kv replicated", q.v_head(), "kv"}};
}
[[nodiscard]] inline std::vector<PartRule> merged_rules(const std::vector<MergedPart>& parts) {
  std::vector<PartRule> rules;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const std::string axis = "n" + std::to_string(k);
    rules.push_back({parts[k].name, axis, axis + " even", 1, ""});
  }
  return rules;
}

/// One sum after a row-parallel product, one gather when the output is gathered; none at tp 1.
[[nodiscard]] inline std::vector<CollectiveOp> declared_collectives(const LayerSpec& s) {
  if (s.tp == 1) return {};
  if (s.layer == "row" || s.layer == "mlp") return {CollectiveOp::all_reduce};
  if (s.gather_output && (s.layer == "column" || s.layer == "merged"))
    return {CollectiveOp::all_gather};
  return {};
}

/// Fills `subject` from `spec`; names of parameters are PREFIXweight and PREFIXbias.
inline void declare(Subject& subject, const LayerSpec& s) {
  Declaration d(subject, s);
  const Axes axes = axes_for(s);
  subject.collectives = declared_collectives(s);
  const auto merged = [&](const std::string& prefix, Index cols,
                          const std::vector<PartRule>& rules) {
    d.merged(prefix + "weight", cols, rules, s.disk, axes);
    if (s.bias) d.merged(prefix + "bias", 0, rules, s.disk, axes);
  };
  const auto output_of_part = [&](std::size_t k) {
    const DeclaredPart& part = subject.params[0].parts[k];
    subject.outputs.push_back({k, part.rows, part.label, part.granule});
  };
  const auto bias_follows_weight = [&](std::size_t weight, std::size_t bias) {
    for (std::size_t k = 0; k < subject.params[weight].parts.size(); ++k)
      subject.partners.push_back(
          {{subject.params[weight].name, k, 0}, {subject.params[bias].name, k, 0}});
  };
  const auto replicated_input = [&](Index width) {
    subject.input_width = width;
    subject.input_columns = d.whole(width);
  };

  if (s.layer == "qkv") {
    merged(s.prefix, s.qkv.hidden, qkv_rules(s.qkv));
    subject.heads = s.qkv;
    replicated_input(s.qkv.hidden);
    for (std::size_t k = 0; k < 3; ++k) output_of_part(k);
    if (s.bias) bias_follows_weight(0, 1);
  } else if (s.layer == "merged") {
    merged(s.prefix, s.in, merged_rules(s.parts));
    replicated_input(s.in);
    for (std::size_t k = 0; k < s.parts.size(); ++k) {
      if (s.gather_output)
        subject.outputs.push_back({k, d.whole(s.parts[k].rows), s.parts[k].name});
      else
        output_of_part(k);
    }
    if (s.bias) bias_follows_weight(0, 1);
  } else if (s.layer == "mlp") {
    merged("gate_up_proj.", s.qkv.hidden, merged_rules(gate_up(s.intermediate)));
    const std::size_t down = subject.params.size();
    d.single("down_proj.weight", "down_proj.weight", Shape(s.qkv.hidden, s.intermediate), 1);
    if (s.bias) d.single("down_proj.bias", "down_proj.bias", Shape(s.qkv.hidden), std::nullopt);
    replicated_input(s.qkv.hidden);
    subject.linear = false;
    subject.outputs.push_back({0, d.whole(s.qkv.hidden)});
    subject.partners.push_back({{"gate_up_proj.weight", 0, 0},
                                {"gate_up_proj.weight", 1, 0},
                                {subject.params[down].name, 0, 1}});
    if (s.bias) bias_follows_weight(0, 1);
  } else {
    const std::optional<int> tp_dim = s.layer == "column" ? std::optional(0)
                                      : s.layer == "row"  ? std::optional(1)
                                                          : std::nullopt;
    d.single(s.prefix + "weight", "weight", Shape(s.out, s.in), tp_dim);
    if (s.bias)
      d.single(s.prefix + "bias", "bias", Shape(s.out),
               s.layer == "column" ? std::optional(0) : std::nullopt);
    replicated_input(s.in);
    if (s.layer == "row" && s.input_is_parallel)
      subject.input_columns = subject.params[0].parts[0].cols;
    subject.outputs.push_back({0, s.layer == "column" && !s.gather_output
                                      ? subject.params[0].parts[0].rows
                                      : d.whole(s.out)});
    if (s.bias) bias_follows_weight(0, 1);
  }
}

}  // namespace detail

/// @throws LayoutError with every violated rule, and the legal tp in the hint
inline void require_legal(const LayerSpec& s) {
  std::vector<Violation> broken = violations(s);
  if (broken.empty()) return;
  const std::string hint = or_list(legal_tp(s, 512));
  const std::string subject = hint.empty()
                                  ? "this layer cannot be built"
                                  : "tp " + std::to_string(s.tp) + " cannot split this layer";
  throw LayoutError(subject, std::move(broken), hint.empty() ? "" : "tp can be " + hint);
}

}  // namespace tpsim
