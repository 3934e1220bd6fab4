// SPDX-License-Identifier: MIT
// A model plan with the numbers of a config.
#include <algorithm>
#include <array>

#include <tpsim/checkpoint/bound_model.hpp>

#include "config_dtype.hpp"
#include "config_expression.hpp"
#include "mapped_file.hpp"
#include "plan_rules.hpp"
#include "quantization_config.hpp"
#include "rope_config.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

using nlohmann::json;

/// Every tensor of every layer is listed: an untrusted config must not fill the memory.
constexpr Index most_layers = 10'000;

std::string with_number(const std::string& pattern, Index number) {
  std::string out = pattern;
  return out.replace(out.find("{}"), 2, std::to_string(number));
}

std::optional<Activation> activation_of(const std::string& word) {
  // Names of transformers' ACT2FN.
  if (word == "silu" || word == "swish") return Activation::silu;
  if (word == "gelu") return Activation::gelu;
  if (word == "gelu_new" || word == "gelu_fast" || word == "gelu_pytorch_tanh")
    return Activation::gelu_tanh;
  return std::nullopt;
}
const std::vector<std::string>& activations() {
  static const std::vector<std::string> known{"silu",     "swish",     "gelu",
                                              "gelu_new", "gelu_fast", "gelu_pytorch_tanh"};
  return known;
}

class ModelBinder {
 public:
  ModelBinder(const ModelPlan& plan, const json& config, const std::string& file, ConfigUse use)
      : plan_(plan),
        file_(file),
        use_(use),
        config_(with_rope_parameters(config, problems_)),
        in_(config_, problems_) {}

  [[nodiscard]] BoundModel bind() {
    out_.architecture = plan_.architecture;
    out_.ignored = plan_.ignored;
    model_type();
    expected_keys();
    axes();
    layer_count_ = in_.size(plan_.decoder.layers, "the number of layers", most_layers);
    shape();
    throw_if_any();
    tensors();
    throw_if_any();
    return std::move(out_);
  }

 private:
  void throw_if_any() { problems_.throw_if_any("cannot use " + shown(file_)); }

  void model_type() {
    const json* type = in_.find("model_type");
    const std::string known = fmt::format("{}", fmt::join(plan_.model_types, ", "));
    if (type == nullptr || !type->is_string())
      in_.problem("model_type is missing; the plan serves " + known);
    else if (std::find(plan_.model_types.begin(), plan_.model_types.end(),
                       type->get<std::string>()) == plan_.model_types.end())
      in_.problem(fmt::format("model_type is {}; the plan of {} serves {}",
                              shown(type->get<std::string>()), plan_.architecture, known));
  }
  void expected_keys() {
    for (const auto& [key, wanted] : plan_.expects)
      if (const json* value = in_.find(key); value != nullptr && value->dump() != wanted)
        in_.problem(fmt::format("{} is {}, but {} always has {}", key, shown(value->dump()),
                                plan_.architecture, wanted));
    if (in_.find("quantization_config") == nullptr) return;
    ConfigReader reader(config_, problems_);
    if (use_ == ConfigUse::sizes)
      out_.quantization = read_quantization(reader, problems_);
    else
      in_.problem("quantization_config: the tensors of quantised weights have no plan");
  }

  void axes() {
    for (const auto& [name, value] : plan_.axes) {
      const Index n = in_.size(value, "axis " + name);
      if (n > 0) out_.axes[name] = n;
    }
    complete_axes(out_.axes);
    const std::array<std::pair<const char*, const char*>, 4> products{
        {{"h", "d"}, {"kv", "d"}, {"h", "m"}, {"kv", "m"}}};
    for (const auto& [a, b] : products)
      if (axis(a) * axis(b) > max_size)
        in_.problem(
            fmt::format("axes {} {} times {} {} are over {}", a, axis(a), b, axis(b), max_size));
  }
  /// 1 when it had a problem.
  [[nodiscard]] Index axis(const char* name) const {
    const auto it = out_.axes.find(name);
    return it == out_.axes.end() ? 1 : it->second;
  }

  /// What the tensors do not tell; what they tell follows in tensors().
  void shape() {
    const DecoderRules& rules = plan_.decoder;
    layer_.attention.qkv = {axis("H"), axis("d"), axis("h"), axis("kv"), 0};
    if (axis("m") != axis("d")) layer_.attention.qkv.v_head_dim = axis("m");
    layer_.intermediate = axis("i");
    if (!rules.positions.empty())
      out_.shape.max_positions = in_.size(rules.positions, "the longest sequence");
    const double eps = in_.number(rules.eps, "epsilon of the norms");
    if (!(eps >= 0)) in_.problem(fmt::format("epsilon of the norms is {}; legal: from 0", eps));
    layer_.norm_eps = layer_.attention.norm_eps = out_.shape.norm_eps = eps;
    const std::string act = in_.word(rules.activation, "activation", activations());
    if (const auto known = activation_of(act))
      layer_.activation = *known;
    else if (!act.empty())
      in_.problem(fmt::format("activation {} is not supported; supported: {}", shown(act),
                              fmt::join(activations(), ", ")));
    layer_.parallel_residual = in_.flag(rules.parallel_residual, "parallel_residual");
    layer_.attention.alibi = in_.flag(rules.alibi, "alibi");
    if (rules.rope)
      layer_.attention.rope = read_rope(config_, in_, *rules.rope, axis("d"),
                                        out_.shape.max_positions, problems_, out_.notes);
    out_.shape.tied = in_.flag(rules.tied, "tied embeddings");
    out_.dtype = read_config_dtype(in_);
    windows();
  }

  /// windowed_[layer]
  void windows() {
    windowed_.assign(static_cast<std::size_t>(layer_count_), false);
    if (!plan_.decoder.window) return;
    const WindowRule& rule = *plan_.decoder.window;
    if (!in_.flag(rule.when, "the window's condition")) return;
    window_ = in_.size_or_none(rule.size, "the window");
    if (!window_) return;
    const json* types = rule.types.empty() ? nullptr : in_.find(rule.types);
    if (types == nullptr) {
      const Index from = in_.count(rule.from, "the first layer with a window").value_or(0);
      for (Index i = from; i < layer_count_; ++i) windowed_[static_cast<std::size_t>(i)] = true;
      return;
    }
    if (!types->is_array() || types->size() != windowed_.size())
      return in_.problem(fmt::format("{} must be a list of {} entries, one for each layer",
                                     rule.types, windowed_.size()));
    for (std::size_t i = 0; i < windowed_.size(); ++i) {
      const std::string type = (*types)[i].is_string() ? (*types)[i].get<std::string>() : "";
      windowed_[i] = type == "sliding_attention";
      if (!windowed_[i] && type != "full_attention")
        in_.problem(fmt::format("{} has {}; legal: full_attention, sliding_attention", rule.types,
                                (*types)[i].is_string() ? shown(type) : "no text"));
    }
  }

  [[nodiscard]] std::vector<PlanTensor> chosen(const std::vector<PlanRule>& rules,
                                               const std::vector<DecoderParam>& params) {
    return plan_tensors(rules, params, [&](const std::string& condition, const std::string& who) {
      return in_.flag(condition, who);
    });
  }

  void tensors() {
    const std::vector<PlanTensor> layer = chosen(plan_.tensors, layer_params());
    const std::vector<PlanTensor> model = chosen(plan_.model, model_params());
    required(layer, layer_params());
    required(model, model_params());
    throw_if_any();
    tell_from(layer);
    out_.shape.norm = layer_.norm = norm_kind(layer, "input_layernorm");
    if (norm_kind(layer, "post_attention_layernorm") != layer_.norm ||
        norm_kind(model, "norm") != layer_.norm)
      in_.problem("some norms have a bias and some have none");
    throw_if_any();
    kinds(layer);
    outside(model, true);
    each_layer();
    outside(model, false);
  }

  /// A condition may have taken away what a decoder needs.
  void required(const std::vector<PlanTensor>& tensors, const std::vector<DecoderParam>& params) {
    for (const DecoderParam& param : params)
      if (param.required && !fills(tensors, param.layer + ".weight"))
        in_.problem(fmt::format("with this config no tensor goes into {}", param.layer));
  }
  [[nodiscard]] static bool fills(const std::vector<PlanTensor>& tensors,
                                  const std::string& param) {
    const bool bias = param.ends_with(".bias");
    return std::any_of(tensors.begin(), tensors.end(), [&](const PlanTensor& t) {
      return t.name.ends_with(".bias") == bias && param.starts_with(t.fills + ".");
    });
  }
  [[nodiscard]] NormKind norm_kind(const std::vector<PlanTensor>& tensors,
                                   const std::string& layer) const {
    if (plan_.decoder.norm == "rms") return NormKind::rms;
    return fills(tensors, layer + ".bias") ? NormKind::layer : NormKind::layer_without_bias;
  }

  /// What the tensors of a layer tell of it.
  void tell_from(const std::vector<PlanTensor>& tensors) {
    layer_.attention.qkv_bias = fills(tensors, "self_attn.qkv_proj.bias");
    layer_.attention.o_bias = fills(tensors, "self_attn.o_proj.bias");
    layer_.attention.sinks = fills(tensors, "self_attn.sinks.weight");
    layer_.gated = fills(tensors, "mlp.gate_up_proj.weight");
    layer_.mlp_bias = fills(tensors, "mlp.down_proj.bias");
    for (const PlanTensor& t : tensors)
      if (t.fills == "self_attn.q_norm")
        layer_.attention.qk_norm = t.style == "column" ? QkNorm::full_width : QkNorm::per_head;
    const std::string first = layer_.gated ? "mlp.gate_up_proj.bias" : "mlp.up_proj.bias";
    if (fills(tensors, first) != layer_.mlp_bias)
      in_.problem("the two layers of the MLP must both have a bias, or neither");
  }

  void kinds(const std::vector<PlanTensor>& tensors) {
    Plan plan;
    plan.name = plan_.architecture + " layer";
    plan.axes = out_.axes;
    plan.tensors = tensors;
    plan.input = "H", plan.outputs = {"H"};
    plan.collectives.emplace(static_cast<std::size_t>(decoder_sums(layer_).total()), "all_reduce");
    const BoundPlan bound = bind_plan(plan);
    for (const BoundTensor& t : bound.tensors)
      layer_tensors_.push_back(std::make_shared<const BoundTensor>(t));
    std::optional<std::size_t> kind_of[2];  // without and with a window
    for (std::size_t i = 0; i < windowed_.size(); ++i) {
      std::optional<std::size_t>& kind = kind_of[windowed_[i] ? 1 : 0];
      if (!kind) {
        kind = out_.kinds.size();
        DecoderShape shape = layer_;
        if (windowed_[i]) shape.attention.window = window_;
        out_.kinds.push_back({std::move(shape), bound});
      }
      out_.kind_of_layer.push_back(*kind);
      out_.shape.layers.push_back(out_.kinds[*kind].shape);
    }
  }
  void each_layer() {
    for (Index i = 0; i < layer_count_; ++i)
      for (const auto& t : layer_tensors_) {
        ModelTensor tensor{
            with_number(plan_.layer, i) + t->name, {}, t->shape_of(t->layout.rows()), t, i};
        tensor.param = tensor.prefix() + t->param;
        out_.tensors.push_back(std::move(tensor));
      }
  }

  /// The embedding, or the final norm and the head. Their padded cut is none that a module's plan
  /// can have: it is set afterwards.
  void outside(const std::vector<PlanTensor>& tensors, bool embedding) {
    Plan plan;
    plan.axes = out_.axes;
    plan.tensors = tensors;
    plan.input = "H", plan.outputs = {"H"};
    for (PlanTensor& t : plan.tensors) t.style = "replicated", t.cut.clear();
    const BoundPlan bound = bind_plan(plan);
    for (std::size_t k = 0; k < bound.tensors.size(); ++k) {
      const std::string& layer = tensors[k].fills;
      if ((layer == "embed_tokens") != embedding) continue;
      BoundTensor t = bound.tensors[k];
      if (!tensors[k].cut.empty()) {
        t.tp_dim = 0;
        for (PlanPart& part : t.parts) part.cut = Cut::parse(tensors[k].cut);
        vocabulary(t.parts.front().cut);
      }
      if (layer == "lm_head" && t.rank == 1) out_.shape.head_bias = true;
      const Shape shape = t.shape_of(t.layout.rows());
      const bool unread = layer == "lm_head" && out_.shape.tied && t.rank == 2;
      out_.tensors.push_back({t.name, unread ? "" : t.param, shape,
                              std::make_shared<const BoundTensor>(std::move(t)), std::nullopt,
                              unread});
    }
  }
  void vocabulary(const Cut& cut) {
    out_.shape.vocab = {axis("V"), axis("H"), 1, false};
    if (cut.rule != CutRule::padded) return;
    out_.shape.vocab.pad_to = cut.size;
    out_.shape.vocab.pad_times_tp = cut.times_tp;
    out_.shape.vocab.fill = cut.fill;
  }

  const ModelPlan& plan_;
  const std::string& file_;
  ConfigUse use_;
  Problems problems_;
  json config_;
  ConfigEvaluator in_;
  BoundModel out_;
  DecoderShape layer_;
  Index layer_count_ = 0;
  std::optional<Index> window_;
  std::vector<bool> windowed_;
  std::vector<std::shared_ptr<const BoundTensor>> layer_tensors_;
};

}  // namespace

std::string read_config_text(const std::filesystem::path& file) {
  constexpr Index max_file = Index{16} << 20U;
  return std::string(MappedFile(file, max_file).text());
}

BoundModel bind_model(const ModelPlan& plan, std::string_view config_json,
                      const std::string& file_name, ConfigUse use) {
  if (std::vector<Violation> broken = lint_plan(plan); !broken.empty())
    throw LayoutError("cannot use the plan " + shown(plan.file), std::move(broken));
  const json config = parse_strict_json(config_json, file_name);
  return ModelBinder(plan, config, file_name, use).bind();
}

BoundModel bind_model(std::string_view config_json, const std::string& file_name, ConfigUse use) {
  return bind_model(plan_for(config_json, file_name), config_json, file_name, use);
}

}  // namespace tpsim
