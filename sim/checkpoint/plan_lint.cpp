// SPDX-License-Identifier: MIT
// What is wrong with a model plan whatever the config.
#include <algorithm>
#include <array>
#include <set>

#include <tpsim/checkpoint/model_plan.hpp>
#include <tpsim/layout/expression.hpp>

#include "config_expression.hpp"
#include "nearest.hpp"
#include "plan_rules.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

/// Each axis a prime of its own, so that two products are equal only when their axes are the same.
constexpr std::array<std::pair<const char*, Index>, 8> trial{
    {{"kv", 3}, {"g", 5}, {"d", 7}, {"H", 11}, {"i", 13}, {"V", 17}, {"m", 19}, {"h", 23}}};

class PlanLint {
 public:
  explicit PlanLint(const ModelPlan& plan) : plan_(plan) {}

  [[nodiscard]] std::vector<Violation> run() {
    header();
    axes();
    expressions();
    rules(plan_.model, model_params(), "model");
    rules(plan_.tensors, layer_params(), "tensors");
    filled(plan_.model, model_params());
    filled(plan_.tensors, layer_params());
    layers();
    binding(plan_.tensors, layer_params());
    binding(plan_.model, model_params());
    unused_axes();
    return std::move(found_);
  }

 private:
  void add(const char* rule, const std::string& message) {
    const Violation v{rule, message};
    if (std::find(found_.begin(), found_.end(), v) == found_.end()) found_.push_back(v);
  }

  void header() {
    if (plan_.architecture.empty()) add("names", "architecture is empty");
    if (plan_.model_types.empty()) add("names", "model_types is empty: the plan serves no config");
    const std::size_t first = plan_.layer.find("{}");
    if (first == std::string::npos || plan_.layer.find("{}", first + 1) != std::string::npos)
      add("names", "layer is " + shown(plan_.layer) +
                       "; it must have {} once, where the number of the layer stands");
    for (const std::string& name : plan_.ignored)
      if (name.find("{}") != name.rfind("{}"))
        add("names", "ignored " + shown(name) + " has {} more than once");
    if (plan_.decoder.norm != "rms" && plan_.decoder.norm != "layer")
      add("names", "decoder.norm is " + shown(plan_.decoder.norm) + "; legal: rms, layer");
  }

  void axes() {
    for (const auto& [name, value] : plan_.axes) {
      const auto* const known = std::find_if(
          trial.begin(), trial.end(), [&name = name](auto& each) { return name == each.first; });
      if (known == trial.end())
        add("names", "axis " + shown(name) +
                         " is unknown; axes are H, V, i, kv, g, d, m (v head_dim) and h");
      else
        axes_[name] = known->second;
    }
    const bool kv = has("kv"), g = has("g"), h = has("h");
    for (const char* needed : {"H", "V", "i", "d"})
      if (!has(needed)) add("names", fmt::format("axis {} is not defined", needed));
    if (h && (kv || g))
      add("names", "axis h is kv*g: define kv and g, or h alone");
    else if (!h && kv != g)
      add("names",
          fmt::format("axis {} is not defined, and {} is", kv ? "g" : "kv", kv ? "kv" : "g"));
    else if (!h && !kv)
      add("names", "axes kv and g are not defined, nor h alone");
    complete_axes(axes_);
  }
  [[nodiscard]] bool has(const char* axis) const {
    return plan_.axes.find(axis) != plan_.axes.end();
  }

  void expressions() {
    for (const auto& [name, value] : plan_.axes) expression(value, "axis " + name);
    const DecoderRules& d = plan_.decoder;
    expression(d.layers, "decoder.layers");
    expression(d.eps, "decoder.eps");
    expression(d.activation, "decoder.activation");
    if (!d.positions.empty()) expression(d.positions, "decoder.positions");
    expression(d.tied, "decoder.tied");
    expression(d.parallel_residual, "decoder.parallel_residual");
    expression(d.alibi, "decoder.alibi");
    if (d.rope) {
      expression(d.rope->theta, "decoder.rope.theta");
      expression(d.rope->part, "decoder.rope.part");
    }
    if (d.window) {
      expression(d.window->size, "decoder.window.size");
      expression(d.window->when, "decoder.window.when");
      expression(d.window->from, "decoder.window.from");
    }
    for (const auto* list : {&plan_.model, &plan_.tensors})
      for (const PlanRule& rule : *list) {
        expression(rule.when, rule.name + " when");
        expression(rule.bias, rule.name + " bias");
      }
  }
  void expression(const std::string& text, const std::string& who) {
    attempt(who, [&] { (void)ConfigExpression::parse(text); });
  }
  template <class Action>
  void attempt(const std::string& who, Action action) {
    try {
      action();
    } catch (const LayoutError& e) {
      for (const Violation& v : e.violations()) add(v.rule.c_str(), shown(who) + ": " + v.message);
      if (e.violations().empty()) add("names", shown(who) + ": " + e.subject());
    }
  }

  [[nodiscard]] std::optional<std::vector<LabelAxes>> parts_of(const std::string& text) {
    try {
      return label_axes(LayoutExpr::parse(text), axes_);
    } catch (const LayoutError&) {
      return std::nullopt;  // binding() tells
    }
  }
  [[nodiscard]] Index value_of(const std::string& product) {
    const auto parts = parts_of(product);
    return parts ? detail::product(parts->front().axes) : 0;
  }
  /// 0 when it is unknown.
  [[nodiscard]] Index value_of(const Cut& cut) const {
    Index n = 1;
    for (const std::string& axis : cut.axes) {
      const auto it = axes_.find(axis);
      n *= it == axes_.end() ? 0 : it->second;
    }
    return n;
  }

  void rules(const std::vector<PlanRule>& list, const std::vector<DecoderParam>& params,
             const std::string& where) {
    std::vector<std::string> layers;
    for (const DecoderParam& p : params)
      if (layers.empty() || layers.back() != p.layer) layers.push_back(p.layer);
    if (list.empty()) add("names", where + " is empty");
    std::set<std::string> names;
    for (const PlanRule& rule : list) {
      if (!names.insert(rule.name).second) add("names", shown(rule.name) + " is there twice");
      const DecoderParam* param = find_param(params, layer_of(rule), rule.style);
      if (param != nullptr) {
        this->rule(rule, *param);
        continue;
      }
      const std::string near = nearest(layer_of(rule), layers);
      add("names",
          fmt::format("{} goes into {}, which matches nothing in a decoder{}", shown(rule.name),
                      shown(layer_of(rule)),
                      near.empty() ? fmt::format("; its layers are {}", fmt::join(layers, ", "))
                                   : fmt::format("; did you mean {}?", near)));
    }
  }

  void rule(const PlanRule& rule, const DecoderParam& param) {
    const std::string name = shown(rule.name);
    if (rule.style != param.style)
      return add("names",
                 fmt::format("{} has style {}{}; {} needs style {}", name, shown(rule.style),
                             rule.cut.empty() ? " and no cut" : "", param.layer, param.style));
    if (rule.bias != "false" && !param.bias)
      add("names", fmt::format("{} has a bias, and {} has none", name, param.layer));
    if (rule.bias != "false" && param.style == "replicated" && plan_.decoder.norm == "rms")
      add("names", fmt::format("{} has a bias, and an rms norm has none", name));
    if (rule.bias != "false" && !rule.name.ends_with(".weight"))
      add("names", fmt::format("{} has a bias, but does not end in .weight", name));
    if (param.cols.empty() != rule.cols.empty())
      add("cover",
          fmt::format("{} is a {}, and {} needs a {}", name,
                      rule.cols.empty() ? "vector" : "matrix", param.layer,
                      param.cols.empty() ? "vector" : "matrix of " + param.cols + " columns"));
    else if (!rule.cols.empty())
      product(rule.cols, param.cols, name + ": cols");
    rows(rule, param);
    cuts(rule, param);
  }
  void product(const std::string& text, const std::string& wanted, const std::string& who) {
    const auto parts = parts_of(text);
    if (parts && detail::product(parts->front().axes) != value_of(wanted))
      add("cover", fmt::format("{} {} do not multiply out to {}", who, shown(text), wanted));
  }
  void rows(const PlanRule& rule, const DecoderParam& param) {
    const auto parts = parts_of(rule.rows);
    if (!parts) return;
    for (const LabelAxes& part : *parts) {
      const DecoderPart* wanted = find_part(param, part.label);
      if (wanted == nullptr)
        add("names", fmt::format("{}: part {} is none of {}; {}", shown(rule.name),
                                 shown(part.label), param.layer, labels_of(param)));
      else if (detail::product(part.axes) != value_of(wanted->rows))
        add("cover",
            fmt::format("{}: rows {} of {} do not multiply out to {}", shown(rule.name),
                        shown(str(part.axes)),
                        part.label.empty() ? param.layer : "part " + part.label, wanted->rows));
    }
  }
  void cuts(const PlanRule& rule, const DecoderParam& param) {
    if (param.style == "replicated" || rule.cut.empty()) return;
    for (const std::string& each : detail::comma_list(rule.cut)) {
      const std::size_t colon = each.find(':');
      const std::string label = colon == std::string::npos ? "" : each.substr(0, colon);
      Cut cut;
      try {
        cut = Cut::parse(colon == std::string::npos ? each : each.substr(colon + 1));
      } catch (const LayoutError& e) {
        if (param.parts.front().rows == "V")
          add("names", shown(rule.name) + " cut: " + e.subject());
        continue;  // binding() tells
      }
      const Index value = value_of(cut);
      const auto parts = parts_of(rule.rows);
      for (const DecoderPart& part : param.parts) {
        const bool here = parts && std::any_of(parts->begin(), parts->end(), [&](const auto& p) {
                            return p.label == part.label;
                          });
        if (!here || (!label.empty() && label != part.label)) continue;
        if (value != 0 && value != value_of(part.cut))
          add("heads", fmt::format("{}: cut {} divides {}, wanted {}", shown(rule.name),
                                   shown(cut.str()), str_of(cut), part.cut));
      }
    }
  }
  [[nodiscard]] static std::string str_of(const Cut& cut) {
    return cut.axes.empty() ? "nothing" : fmt::format("{}", fmt::join(cut.axes, "*"));
  }
  [[nodiscard]] static const DecoderPart* find_part(const DecoderParam& param,
                                                    const std::string& label) {
    for (const DecoderPart& part : param.parts)
      if (part.label == label) return &part;
    return nullptr;
  }
  [[nodiscard]] static std::string labels_of(const DecoderParam& param) {
    std::string out;
    for (const DecoderPart& part : param.parts)
      out += (out.empty() ? "" : ", ") + (part.label.empty() ? "no label" : part.label);
    return "legal: " + out;
  }

  /// Each part of each parameter that a decoder must have.
  void filled(const std::vector<PlanRule>& list, const std::vector<DecoderParam>& params) {
    for (const DecoderParam& param : params) {
      std::set<std::string> labels;
      bool any = false;
      for (const PlanRule& rule : list) {
        if (find_param(params, layer_of(rule), rule.style) != &param) continue;
        any = true;
        if (const auto parts = parts_of(rule.rows))
          for (const LabelAxes& part : *parts) labels.insert(part.label);
        else
          return;  // binding() tells
      }
      if (!any && !param.required) continue;
      for (const DecoderPart& part : param.parts)
        if (labels.count(part.label) == 0)
          add("names", part.label.empty() ? "no tensor goes into " + param.layer
                                          : fmt::format("no tensor goes into part {} of {}",
                                                        part.label, param.layer));
    }
  }
  void layers() {
    const auto goes = [&](const char* layer) {
      return std::any_of(plan_.tensors.begin(), plan_.tensors.end(),
                         [&](const PlanRule& rule) { return layer_of(rule) == layer; });
    };
    if (goes("mlp.gate_up_proj") == goes("mlp.up_proj"))
      add("names", "tensors must go into mlp.gate_up_proj (parts gate and up) or into mlp.up_proj");
    if (goes("self_attn.q_norm") != goes("self_attn.k_norm"))
      add("names", "self_attn.q_norm and self_attn.k_norm go together");
    std::set<std::string> cuts;
    for (const PlanRule& rule : plan_.model)
      if (!rule.cut.empty()) cuts.insert(rule.cut);
    if (cuts.size() > 1)
      add("partners", "the embedding and the head are cut differently: " +
                          fmt::format("{}", fmt::join(cuts, "; ")));
  }

  /// Expressions, labels and names, as every plan of a module is checked.
  void binding(const std::vector<PlanRule>& list, const std::vector<DecoderParam>& params) {
    if (list.empty()) return;
    Plan plan;
    plan.axes = axes_;
    // A bias is wrong as its weight is: that is told once.
    plan.tensors =
        plan_tensors(list, params, [](const std::string& condition, const std::string& who) {
          return condition != "false" && !who.ends_with(".bias");
        });
    for (PlanTensor& t : plan.tensors)
      if (&params == &model_params()) t.style = "replicated", t.cut.clear();  // as bind_model
    plan.input = "1", plan.outputs = {"1"};
    try {
      (void)bind_plan(plan);
    } catch (const LayoutError& e) {
      for (const Violation& v : e.violations()) add(v.rule.c_str(), v.message);
    }
  }

  void unused_axes() {
    std::set<std::string> used;
    const auto look = [&](const std::string& text) {
      if (const auto parts = parts_of(text))
        for (const LabelAxes& part : *parts)
          for (const AxisExtent& axis : part.axes) used.insert(axis.name);
    };
    for (const auto* list : {&plan_.model, &plan_.tensors})
      for (const PlanRule& rule : *list) {
        look(rule.rows);
        if (!rule.cols.empty()) look(rule.cols);
      }
    if (used.empty()) return;
    for (const auto& [name, value] : plan_.axes) {
      // h alone says kv and g too, and both say h.
      const bool through_h = (name == "kv" || name == "g") && used.count("h") > 0;
      if (axes_.count(name) > 0 && used.count(name) == 0 && !through_h)
        add("names", "axis " + shown(name) + " is defined, and no tensor has it");
    }
  }

  const ModelPlan& plan_;
  Axes axes_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> lint_plan(const ModelPlan& plan) { return PlanLint(plan).run(); }

}  // namespace tpsim
