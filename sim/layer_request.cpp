// SPDX-License-Identifier: MIT
// What the command line of a layer check asks for.
#include "sim/layer_request.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_list.hpp>

#include "sim/cuda_numeric.hpp"
#include "sim/decoder_request.hpp"
#include "sim/job.hpp"
#include "sim/model_source.hpp"
#include "sim/models.hpp"
#include "sim/options.hpp"
#include "sim/shared_options.hpp"
#include "sim/specs.hpp"

namespace tpsim::cli {
namespace {

constexpr Index largest_elements = Index{1} << 36;  // of one weight

class Sizes {
 public:
  explicit Sizes(const Given& given) : given_(given) {}
  // `name` as given, else `fallback`.
  [[nodiscard]] Index operator()(const char* name, Index fallback) const {
    const auto it = given_.find(name);
    return it == given_.end() ? fallback : number(name, it->second, 1, largest_size);
  }

 private:
  const Given& given_;
};

std::vector<MergedPart> parse_parts(const std::string& text) {
  std::vector<Index> rows;
  for (const std::string& word : split(text, ",")) {
    rows.push_back(number("parts", word, 1, largest_size));
    if (rows.size() > 64) throw UsageError("--parts has more than 64 parts");
  }
  std::vector<MergedPart> parts;
  for (std::size_t k = 0; k < rows.size(); ++k)
    parts.push_back(
        {rows.size() == 2 ? (k == 0 ? "gate" : "up") : "p" + std::to_string(k), rows[k]});
  return parts;
}

void require_small_enough(const LayerSpec& s) {
  for (const auto& [name, rows, cols] : weight_sizes(s))
    if (rows > largest_elements / std::max<Index>(cols, 1))
      throw UsageError(fmt::format("{} [{}, {}] is too large", name, rows, cols),
                       fmt::format("a weight can have at most {} elements", largest_elements));
}

// Options that only some layers have. The model's own sizes are not here: they describe the model,
// whichever of its layers is looked at.
const std::vector<std::pair<std::string, std::vector<std::string>>>& layer_options() {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> only = [] {
    std::vector<std::pair<std::string, std::vector<std::string>>> all{
        {"gather-output", {"column", "merged", "lm_head"}},
        {"bias",
         {"column", "row", "merged", "qkv", "replicated", "mlp", "lm_head", "attention",
          "decoder"}},
        {"vocab-cut", {"embedding", "lm_head"}},
        {"tied", {"lm_head"}},
        {"argmax", {"lm_head"}},
        {"last-token", {"lm_head"}},
        {"input-not-parallel", {"row"}},
        {"no-reduce-results", {"row"}},
        {"skip-bias-add", {"column", "row", "merged", "qkv", "replicated"}},
        {"disk", {"qkv", "merged", "mlp"}},
        {"parts", {"merged"}},
        {"in", {"column", "row", "merged", "replicated"}},
        {"out", {"column", "row", "replicated"}},
        {"v-head-dim", {"qkv", "attention", "decoder"}}};
    all.insert(all.end(), decoder_layer_options().begin(), decoder_layer_options().end());
    return all;
  }();
  return only;
}

bool has_option(const std::string& layer, const std::string& option) {
  for (const auto& [name, layers] : layer_options())
    if (name == option) return std::find(layers.begin(), layers.end(), layer) != layers.end();
  return true;
}

// A word without effect would mislead.
void require_options_apply(const Given& given, const std::string& layer) {
  for (const auto& [option, layers] : layer_options())
    if (given.count(option) != 0 && !has_option(layer, option))
      throw UsageError(fmt::format("--{} is no option of layer {}", option, layer),
                       "it belongs to " + or_list(layers));
}

constexpr const char* leave_one_out = "leave one of the two out";

// No option may give a shape where something else does.
void refuse_sizes(const Given& given, const std::string& why, const std::string& allowed = "") {
  for (const char* option :
       {"model",        "hidden",    "heads",    "kv-heads", "head-dim", "v-head-dim",
        "intermediate", "in",        "out",      "parts",    "disk",     "bias",
        "vocab",        "vocab-cut", "tied",     "qk-norm",  "norm",     "sinks",
        "qkv-bias",     "o-bias",    "mlp-bias", "plain-mlp"})
    if (given.count(option) != 0 && option != allowed)
      throw UsageError(fmt::format("{}, without --{}", why, option), leave_one_out);
}

LayerSpec build_spec(const std::string& layer, int tp, const Given& given, const LayerRequest& r) {
  if (r.toy) {
    refuse_sizes(given, "--toy has its own numbers");
    if (given.count("weights") != 0)
      throw UsageError("--toy has its own numbers, without --weights", leave_one_out);
  }
  LayerSpec s = r.toy ? toy_spec(layer) : LayerSpec{};
  s.layer = layer;
  s.tp = tp;
  const Sizes size(given);
  if (!r.toy) {
    const ModelShape& m = *find_model(r.model);
    s.qkv.hidden = size("hidden", m.hidden);
    s.qkv.heads = size("heads", m.heads);
    s.qkv.kv_heads = size("kv-heads", std::min(m.kv_heads, s.qkv.heads));
    s.qkv.head_dim = size("head-dim", m.head_dim);
    s.qkv.v_head_dim = size("v-head-dim", 0);
    s.intermediate = size("intermediate", m.intermediate);
    s.tokens = size("tokens", 16);
    fill_plain_sizes(s);
    s.in = size("in", s.in);
    s.out = size("out", s.out);
    s.parts = given.count("parts") != 0 ? parse_parts(given.at("parts")) : gate_up(s.intermediate);
    s.vocab = size("vocab", m.vocab);
    if (const auto cut = given.find("vocab-cut"); cut != given.end()) s.vocab_cut = cut->second;
    s.bias =
        (given.count("bias") != 0 && has_option(layer, "bias")) || (layer == "qkv" && m.qkv_bias);
    if (const auto disk = given.find("disk"); disk != given.end()) s.disk = disk->second;
    if (is_decoder_layer(layer))
      fill_from_model(s, bound(find_model_source(r.model), "").shape.layers[0]);
  } else {
    s.tokens = size("tokens", s.tokens);
  }
  if (is_decoder_layer(layer)) fill_from_options(s, given);
  // Of --layer all, each layer takes the options that it has.
  const auto asked = [&](const char* option) {
    return given.count(option) != 0 && has_option(layer, option);
  };
  s.skip_bias_add = asked("skip-bias-add");
  s.gather_output = asked("gather-output");
  s.input_is_parallel = !asked("input-not-parallel");
  s.reduce_results = !asked("no-reduce-results");
  s.tied = asked("tied");
  s.argmax = asked("argmax");
  s.last_token = asked("last-token");
  if (layer == "qkv") s.prefix = "qkv_proj.";
  if (layer == "merged") s.prefix = "gate_up_proj.";
  require_small_enough(s);
  return s;
}

void read_weights(const Given& given, LayerRequest& r) {
  if (r.weights.empty() && r.module.empty()) return;
  if (r.weights.empty())
    throw UsageError("--module needs --weights DIR", "DIR is a Hugging Face checkpoint");
  if (r.module.empty())
    throw UsageError("--weights needs --module PATH",
                     "for example: --module model.layers.0.self_attn");
  if (r.all)
    throw UsageError("--weights goes with one layer, not all",
                     "name the layer that the module is: qkv, row, column or mlp");
  if (is_decoder_layer(r.specs.front().layer))
    throw UsageError(
        "--weights is no option of layer " + r.specs.front().layer,
        "it goes with qkv, row, column, replicated, merged, mlp, embedding or lm_head");
  refuse_sizes(given, "the sizes come from the checkpoint", "vocab-cut");
  try {
    r.planned = fill_from_checkpoint(r.specs.front(), r.weights, r.module);
  } catch (const LayoutError& e) {
    if (!e.hint().empty()) throw;
    throw LayoutError(e.subject(), e.violations(),
                      "--weights takes a folder with config.json and safetensors files, --module "
                      "the path of a linear layer, a self_attn or an mlp in it");
  }
  r.model = r.weights;
}

// Options that a layer check does not have, and the commands that do.
void refuse_options_of_commands(const Given& given) {
  static const std::vector<std::pair<const char*, const char*>> owners{
      {"rules", "'tpsim plan'"},
      {"ep", "'tpsim plan'"},
      {"bandwidth", "'tpsim plan'"},
      {"flops", "'tpsim plan'"},
      {"link", "'tpsim plan'"},
      {"latency", "'tpsim plan'"},
      {"plan", "'tpsim plan', 'check', 'run' and 'synth'"},
      {"layers", "'tpsim synth'"},
      {"max-shard-size", "'tpsim synth'"},
      {"force", "'tpsim synth'"},
      {"full", "'tpsim check'"},
      {"generate", "'tpsim run'"}};
  for (const auto& [option, owner] : owners)
    if (given.count(option) != 0)
      throw UsageError(fmt::format("--{} is no option of a layer check", option),
                       fmt::format("it belongs to {}", owner));
}

}  // namespace

LayerRequest parse_layer(const Given& given, RankWorld* world) {
  LayerRequest r;
  const auto text = [&](const char* name, std::string fallback) {
    const auto it = given.find(name);
    return it == given.end() ? fallback : it->second;
  };
  refuse_options_of_commands(given);
  if (given.count("layer") == 0)
    throw UsageError("--layer is missing", "for example: tpsim --tp 4 --layer qkv");
  read_comm(given, world, r);
  if (given.count("tp") == 0 && r.world == nullptr)
    throw UsageError("--tp is missing", "for example: tpsim --tp 4 --layer qkv");
  const int tp = given.count("tp") == 0 ? r.world->size()
                                        : static_cast<int>(number("tp", given.at("tp"), 1, 512));
  require_tp(tp, r);
  std::vector<std::string> known = known_layers();
  known.emplace_back("all");
  const std::string layer = given.at("layer");
  require_choice("layer", layer, known, "'tpsim list layers' shows all");
  r.all = layer == "all";

  r.model = text("model", r.model);
  std::vector<std::string> names;
  for (const ModelShape& m : models()) names.push_back(m.name);
  require_choice("model", r.model, names, "'tpsim list models' shows all");
  if (given.count("reading") != 0) static_cast<Readings&>(r) = parse_readings(given.at("reading"));
  r.dtype = parse_numeric_dtype(given).value_or(r.dtype);
  r.all_reduce = parse_all_reduce(given);
  r.seed = parse_seed(given);
  r.backend = parse_backend(given);
  r.tf32 = parse_tf32(given, r.backend, r.dtype);

  r.fault = parse_fault(given);
  r.toy = given.count("toy") != 0;
  r.weights = text("weights", "");
  r.module = text("module", "");
  if (!r.fault.empty()) require_fault_runs(r.fault, r.backend);
  if (r.all && given.count("disk") != 0)
    throw UsageError("--disk goes with one layer, not all",
                     "name the layer: " + or_list({"qkv", "merged", "mlp"}));
  if (!r.all) require_options_apply(given, layer);
  std::vector<std::string> wanted{layer};
  if (r.all) {
    wanted = layer_names();
    wanted.insert(wanted.end(), decoder_layer_names().begin(), decoder_layer_names().end());
  }
  for (const std::string& one : wanted) {
    // With a fault, `all` are the layers that can have it.
    if (r.all && !r.fault.empty() && !find_fault(r.fault)->applies_to(one)) continue;
    r.specs.push_back(build_spec(one, tp, given, r));
  }
  read_weights(given, r);
  return r;
}

}  // namespace tpsim::cli
