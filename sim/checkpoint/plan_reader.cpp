// SPDX-License-Identifier: MIT
// The JSON of a model plan.
#include <algorithm>
#include <array>
#include <initializer_list>

#include <tpsim/checkpoint/model_plan.hpp>

#include "mapped_file.hpp"
#include "nearest.hpp"
#include "problems.hpp"
#include "strict_json.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

using nlohmann::json;
constexpr Index largest_plan_file = Index{1} << 20U;

/// One JSON object, of which every key is known.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string where, Problems& problems,
               std::initializer_list<const char*> known)
      : object_(&object), where_(std::move(where)), problems_(&problems) {
    if (!object.is_object()) {
      problem("must be an object");
      object_ = &nothing();
    }
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [key, value] : object_->items())
      if (std::find(names.begin(), names.end(), key) == names.end()) {
        const std::string near = nearest(key, names);
        problem("has no key " + shown(key) +
                (near.empty() ? fmt::format("; its keys are {}", fmt::join(names, ", "))
                              : fmt::format("; did you mean {}?", near)));
      }
  }

  /// A text, number, true or false, as text; `absent` when it is not there.
  void text(const char* key, std::string& out, bool required = false) {
    const json* value = find(key, required);
    if (value == nullptr) return;
    if (value->is_string())
      out = value->get<std::string>();
    else if (value->is_number() || value->is_boolean())
      out = value->dump();
    else
      problem(fmt::format("{} must be a text, a number, true or false", key));
  }
  void texts(const char* key, std::vector<std::string>& out, bool required = false) {
    const json* value = find(key, required);
    if (value == nullptr) return;
    if (!value->is_array() || !std::all_of(value->begin(), value->end(),
                                           [](const json& each) { return each.is_string(); }))
      return problem(fmt::format("{} must be a list of texts", key));
    out = value->get<std::vector<std::string>>();
  }
  [[nodiscard]] const json* find(const char* key, bool required = false) {
    const auto it = object_->find(key);
    if (it != object_->end()) return &*it;
    if (required) problem(fmt::format("{} is missing", key));
    return nullptr;
  }
  void problem(const std::string& message) {
    problems_->add("names", where_.empty() ? "the plan " + message : where_ + ": " + message);
  }

 private:
  static const json& nothing() {
    static const json empty = json::object();
    return empty;
  }
  const json* object_;
  std::string where_;
  Problems* problems_;
};

std::vector<PlanRule> read_rules(const json& object, const std::string& where, Problems& problems) {
  std::vector<PlanRule> out;
  if (!object.is_object()) {
    problems.add("names", where + " must be an object: tensor name to rule");
    return out;
  }
  for (const auto& [name, value] : object.items()) {
    ObjectReader in(value, "tensor " + shown(name), problems,
                    {"rows", "cols", "into", "style", "cut", "when", "bias"});
    PlanRule rule;
    rule.name = name;
    in.text("rows", rule.rows, value.is_object());
    in.text("cols", rule.cols);
    in.text("into", rule.into);
    in.text("style", rule.style);
    in.text("cut", rule.cut);
    in.text("when", rule.when);
    in.text("bias", rule.bias);
    out.push_back(std::move(rule));
  }
  return out;
}

RopeRule read_rope(const json& object, Problems& problems) {
  RopeRule rope;
  ObjectReader in(object, "decoder.rope", problems, {"theta", "part", "style", "scaling"});
  in.text("theta", rope.theta);
  in.text("part", rope.part);
  std::string style = "half_split";
  in.text("style", style);
  if (style == "interleaved")
    rope.style = RopeStyle::interleaved;
  else if (style != "half_split")
    in.problem("style is " + shown(style) + "; legal: half_split, interleaved");
  const std::vector<std::string> known = rope.scaling;
  in.texts("scaling", rope.scaling);
  for (const std::string& type : rope.scaling)
    if (std::find(known.begin(), known.end(), type) == known.end())
      in.problem(
          fmt::format("scaling {} is unknown; known: {}", shown(type), fmt::join(known, ", ")));
  return rope;
}

WindowRule read_window(const json& object, Problems& problems) {
  WindowRule window;
  ObjectReader in(object, "decoder.window", problems, {"size", "when", "from", "types"});
  in.text("size", window.size, true);
  in.text("when", window.when);
  in.text("from", window.from);
  in.text("types", window.types);
  return window;
}

DecoderRules read_decoder(const json& object, Problems& problems) {
  DecoderRules out;
  ObjectReader in(object, "decoder", problems,
                  {"layers", "positions", "norm", "eps", "activation", "rope", "window", "tied",
                   "parallel_residual", "alibi"});
  in.text("layers", out.layers, true);
  in.text("positions", out.positions);
  in.text("norm", out.norm, true);
  in.text("eps", out.eps, true);
  in.text("activation", out.activation, true);
  in.text("tied", out.tied);
  in.text("parallel_residual", out.parallel_residual);
  in.text("alibi", out.alibi);
  if (const json* rope = in.find("rope")) out.rope = read_rope(*rope, problems);
  if (const json* window = in.find("window")) out.window = read_window(*window, problems);
  return out;
}

}  // namespace

ModelPlan parse_model_plan(std::string_view text, const std::string& file_name) {
  const json parsed = parse_strict_json(text, file_name);
  Problems problems;
  ModelPlan plan;
  plan.file = file_name;
  ObjectReader in(parsed, "", problems,
                  {"architecture", "model_types", "axes", "expects", "decoder", "model", "layer",
                   "tensors", "ignored"});
  in.text("architecture", plan.architecture, true);
  in.texts("model_types", plan.model_types, true);
  if (const json* axes = in.find("axes", true)) {
    if (!axes->is_object()) {
      in.problem("axes must be an object: axis to value");
    } else {
      for (const auto& [axis, value] : axes->items()) {
        if (!value.is_string() && !value.is_number())
          in.problem("axis " + shown(axis) + " must be a text");
        else
          plan.axes[axis] = value.is_string() ? value.get<std::string>() : value.dump();
      }
    }
  }
  if (const json* expects = in.find("expects")) {
    if (!expects->is_object())
      in.problem("expects must be an object: key to value");
    else
      for (const auto& [key, value] : expects->items()) plan.expects[key] = value.dump();
  }
  if (const json* decoder = in.find("decoder", true))
    plan.decoder = read_decoder(*decoder, problems);
  if (const json* model = in.find("model", true))
    plan.model = read_rules(*model, "model", problems);
  in.text("layer", plan.layer, true);
  if (const json* tensors = in.find("tensors", true))
    plan.tensors = read_rules(*tensors, "tensors", problems);
  in.texts("ignored", plan.ignored);
  const std::string cannot = "cannot use the plan " + shown(file_name);
  const std::string hint = "the plan format is described in sim/plans/README.md";
  if (problems.empty())
    for (Violation& v : lint_plan(plan)) problems.add(std::move(v.rule), std::move(v.message));
  problems.throw_if_any(cannot, hint);
  return plan;
}

ModelPlan read_model_plan(const std::filesystem::path& file) {
  const MappedFile mapped(file, largest_plan_file);
  return parse_model_plan(mapped.text(), file.string());
}

}  // namespace tpsim
