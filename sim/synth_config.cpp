// SPDX-License-Identifier: MIT
#include "sim/synth_config.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/checkpoint/config_expression.hpp"
#include "sim/checkpoint/problems.hpp"
#include "sim/checkpoint/strict_json.hpp"
#include "sim/model_source.hpp"

namespace tpsim::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using checkpoint_detail::ConfigExpression;
using checkpoint_detail::shown;

struct SizeOption {
  const char *option, *axis;
};
constexpr std::array<SizeOption, 5> axis_options{{{"hidden", "H"},
                                                  {"kv-heads", "kv"},
                                                  {"head-dim", "d"},
                                                  {"intermediate", "i"},
                                                  {"vocab", "V"}}};

// The key that alone decides a value; empty when there is none.
std::string single_key(const std::string& expression) {
  const auto first = ConfigExpression::parse(expression).choices().front();
  return first.size() == 1 && first.front().key ? first.front().word : "";
}

// Query heads are an axis of their own, or the dividend of g: heads / kv heads.
std::string heads_key(const ModelPlan& plan) {
  if (const auto h = plan.axes.find("h"); h != plan.axes.end()) return single_key(h->second);
  const auto g = plan.axes.find("g");
  if (g == plan.axes.end()) return "";
  const auto first = ConfigExpression::parse(g->second).choices().front();
  return first.front().key ? first.front().word : "";
}

std::string key_of(const ModelPlan& plan, const std::string& option) {
  if (option == "layers") return single_key(plan.decoder.layers);
  if (option == "heads") return heads_key(plan);
  for (const SizeOption& o : axis_options)
    if (option == o.option) {
      const auto it = plan.axes.find(o.axis);
      return it == plan.axes.end() ? "" : single_key(it->second);
    }
  return "";
}

[[noreturn]] void refuse_size(const ModelPlan& plan, const std::string& option) {
  for (const SizeOption& o : axis_options)
    if (const auto it = plan.axes.find(o.axis); option == o.option && it != plan.axes.end())
      throw UsageError(fmt::format("--{} is no size of its own in {}: it is {}", option,
                                   plan.architecture, it->second),
                       "change the sizes that it follows from");
  throw UsageError(fmt::format("{} has no --{}", plan.architecture, option),
                   option == "kv-heads" ? "each of its query heads has a kv head of its own" : "");
}

// A config that is edited in place; keys may be inside an object: "text_config.hidden_size".
class ConfigEdit {
 public:
  explicit ConfigEdit(std::string_view text) : json_(Json::parse(text)) {}

  [[nodiscard]] std::optional<Index> size(const std::string& key) const {
    const auto at = pointer(key);
    if (!json_.contains(at) || !json_.at(at).is_number_integer()) return std::nullopt;
    return json_.at(at).get<Index>();
  }
  void set(const std::string& key, Json value) { json_[pointer(key)] = std::move(value); }
  [[nodiscard]] Json* find(const std::string& key) {
    const auto at = pointer(key);
    return json_.contains(at) && !json_.at(at).is_null() ? &json_.at(at) : nullptr;
  }
  [[nodiscard]] std::string text() const { return json_.dump(2) + "\n"; }

 private:
  [[nodiscard]] static Json::json_pointer pointer(std::string key) {
    std::replace(key.begin(), key.end(), '.', '/');
    return Json::json_pointer("/" + key);
  }
  Json json_;
};

// Every query head its own kv head stays so; otherwise there are never more kv heads than heads.
void follow_heads(ConfigEdit& config, const ModelPlan& plan, std::optional<Index> old_heads,
                  Index heads) {
  const std::string key = key_of(plan, "kv-heads");
  const std::optional<Index> kv = key.empty() ? std::nullopt : config.size(key);
  if (kv && (kv == old_heads || *kv > heads)) config.set(key, heads);
}

// A list by layer goes on as it began.
void follow_layers(ConfigEdit& config, const ModelPlan& plan, Index layers) {
  if (!plan.decoder.window || plan.decoder.window->types.empty()) return;
  Json* types = config.find(plan.decoder.window->types);
  if (types == nullptr || !types->is_array() || types->empty()) return;
  Json wanted = Json::array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i)
    wanted.push_back((*types)[i % types->size()]);
  *types = std::move(wanted);
}

// transformers refuses a padding token outside of the vocabulary, and some of its config classes
// have one by default (Phi3Config: 32000).
void follow_vocab(ConfigEdit& config, Index vocab, std::vector<std::string>& notes) {
  const auto outside = [&](const Json& id) {
    return id.is_number_integer() && (id.get<Index>() < 0 || id.get<Index>() >= vocab);
  };
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const Json* id = config.find(key);
    const bool pad = std::string_view(key) == "pad_token_id";
    if (id == nullptr && pad) config.set(key, nullptr);
    if (id == nullptr) continue;
    if (!outside(*id) && !(id->is_array() && std::any_of(id->begin(), id->end(), outside)))
      continue;
    config.set(key, nullptr);
    notes.push_back(fmt::format("{} lies outside of the vocabulary; it is null now", key));
  }
}

void set_sizes(ConfigEdit& config, const ModelPlan& plan, const std::map<std::string, Index>& sizes,
               std::vector<std::string>& notes) {
  for (const auto& [option, value] : sizes) {
    const std::string key = key_of(plan, option);
    if (key.empty()) refuse_size(plan, option);
    const std::optional<Index> old = config.size(key);
    config.set(key, value);
    if (option == "heads" && sizes.count("kv-heads") == 0) follow_heads(config, plan, old, value);
    if (option == "layers") follow_layers(config, plan, value);
    if (option == "vocab") follow_vocab(config, value, notes);
  }
}

// `torch_dtype` is the older name, which old and new readers know.
void set_dtype(ConfigEdit& config, DType dtype) {
  const char* word = dtype == DType::f64    ? "float64"
                     : dtype == DType::f32  ? "float32"
                     : dtype == DType::bf16 ? "bfloat16"
                                            : "float16";
  const bool newer = config.find("dtype") != nullptr;
  if (newer) config.set("dtype", word);
  if (!newer || config.find("torch_dtype") != nullptr) config.set("torch_dtype", word);
}

}  // namespace

const std::vector<std::string>& synth_sizes() {
  static const std::vector<std::string> all{"layers",   "hidden",       "heads", "kv-heads",
                                            "head-dim", "intermediate", "vocab"};
  return all;
}

SynthModel synth_model(const SynthRequest& request) {
  SynthModel out;
  const ModelSource source = find_model_source(request.model);
  const ModelPlan plan = plan_of(source, request.plan_file);
  (void)checkpoint_detail::parse_strict_json(source.config, source.file);  // it is an object
  ConfigEdit config(source.config);
  set_sizes(config, plan, request.sizes, out.notes);
  const std::optional<DType> own = bind_model(plan, config.text(), source.file).dtype;
  if (!own && !request.dtype)
    out.notes.emplace_back("the config gives no dtype; the weights are bf16");
  out.dtype = request.dtype.value_or(own.value_or(DType::bf16));
  set_dtype(config, out.dtype);
  if (config.find("auto_map") != nullptr)
    out.notes.emplace_back(
        "auto_map names the model's own Python files; they are not part of what is written");
  out.config = config.text();
  out.bound = bind_model(plan, out.config, source.file);
  if (!request.plan_file.empty())
    out.notes.push_back("plan " + shown(request.plan_file) + " for " +
                        shown(out.bound.architecture));
  out.notes.insert(out.notes.end(), out.bound.notes.begin(), out.bound.notes.end());
  return out;
}

}  // namespace tpsim::cli
