// SPDX-License-Identifier: MIT
#include "sim/request.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <tpsim/core/text.hpp>
#include <tpsim/verify/fault_list.hpp>

#include "sim/command_line.hpp"
#include "sim/models.hpp"
#include "sim/options.hpp"
#include "sim/specs.hpp"

namespace tpsim::cli {
namespace {

// Reads a whole decimal number in [least, most].
Index number(const std::string& option, const std::string& text, Index least, Index most) {
  Index value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size() || text.empty())
    throw UsageError(fmt::format("--{} '{}' is not a whole number", option, text.substr(0, 40)),
                     fmt::format("--{} can be {} to {}", option, least, most));
  if (error != std::errc() || value < least || value > most)
    throw UsageError(fmt::format("--{} {} is out of range", option, text.substr(0, 40)),
                     fmt::format("--{} can be {} to {}", option, least, most));
  return value;
}

constexpr Index largest_size = Index{1} << 24;      // of one dimension
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
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    rows.push_back(number("parts", text.substr(begin, comma - begin), 1, largest_size));
    begin = comma + 1;
    if (rows.size() > 64) throw UsageError("--parts has more than 64 parts");
  }
  std::vector<MergedPart> parts;
  for (std::size_t k = 0; k < rows.size(); ++k)
    parts.push_back(
        {rows.size() == 2 ? (k == 0 ? "gate" : "up") : "p" + std::to_string(k), rows[k]});
  return parts;
}

void require_choice(const std::string& what, const std::string& value,
                    const std::vector<std::string>& known, const std::string& more) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  const std::string near = nearest(value, known);
  throw UsageError(fmt::format("unknown {} '{}'", what, value.substr(0, 60)),
                   near.empty() ? more : fmt::format("did you mean '{}'? {}", near, more));
}

void parse_readings(const std::string& text, LayerRequest& r) {
  r.statics = r.exact = r.numeric = false;
  r.readings_chosen = true;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, comma - begin);
    require_choice("reading", word, {"static", "exact", "numeric"},
                   "readings are static, exact and numeric");
    (word == "static" ? r.statics : word == "exact" ? r.exact : r.numeric) = true;
    begin = comma + 1;
  }
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
  static const std::vector<std::pair<std::string, std::vector<std::string>>> only{
      {"gather-output", {"column", "merged"}},
      {"input-not-parallel", {"row"}},
      {"no-reduce-results", {"row"}},
      {"skip-bias-add", {"column", "row", "merged", "qkv", "replicated"}},
      {"disk", {"qkv", "merged", "mlp"}},
      {"parts", {"merged"}},
      {"in", {"column", "row", "merged", "replicated"}},
      {"out", {"column", "row", "replicated"}},
      {"v-head-dim", {"qkv"}}};
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
void refuse_sizes(const Given& given, const std::string& why) {
  for (const char* option : {"model", "hidden", "heads", "kv-heads", "head-dim", "v-head-dim",
                             "intermediate", "in", "out", "parts", "disk", "bias"})
    if (given.count(option) != 0)
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
    s.parts = given.count("parts") != 0 ? parse_parts(given.at("parts")) : gate_up_parts(s);
    s.bias = given.count("bias") != 0 || (layer == "qkv" && m.qkv_bias);
    if (const auto disk = given.find("disk"); disk != given.end()) s.disk = disk->second;
  } else {
    s.tokens = size("tokens", s.tokens);
  }
  // Of --layer all, each layer takes the options that it has.
  const auto asked = [&](const char* option) {
    return given.count(option) != 0 && has_option(layer, option);
  };
  s.skip_bias_add = asked("skip-bias-add");
  s.gather_output = asked("gather-output");
  s.input_is_parallel = !asked("input-not-parallel");
  s.reduce_results = !asked("no-reduce-results");
  if (layer == "qkv") s.prefix = "qkv_proj.";
  if (layer == "merged") s.prefix = "gate_up_proj.";
  require_small_enough(s);
  return s;
}

const Fault* find_fault(const std::string& name) {
  for (const Fault& f : faults())
    if (f.name == name) return &f;
  return nullptr;
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
  refuse_sizes(given, "the sizes come from the checkpoint");
  try {
    fill_from_checkpoint(r.specs.front(), r.weights, r.module);
  } catch (const LayoutError& e) {
    if (!e.hint().empty()) throw;
    throw LayoutError(e.subject(), e.violations(),
                      "--weights takes a folder with config.json and safetensors files, --module "
                      "the path of a linear layer, a self_attn or an mlp in it");
  }
  r.model = r.weights;
}

LayerRequest parse_layer(const Given& given) {
  LayerRequest r;
  const auto text = [&](const char* name, std::string fallback) {
    const auto it = given.find(name);
    return it == given.end() ? fallback : it->second;
  };
  if (given.count("layer") == 0)
    throw UsageError("--layer is missing", "for example: tpsim --tp 4 --layer qkv");
  if (given.count("tp") == 0)
    throw UsageError("--tp is missing", "for example: tpsim --tp 4 --layer qkv");
  const int tp = static_cast<int>(number("tp", given.at("tp"), 1, 512));
  std::vector<std::string> known = layer_names();
  known.emplace_back("all");
  const std::string layer = given.at("layer");
  require_choice("layer", layer, known, "'tpsim list layers' shows all");
  r.all = layer == "all";

  r.model = text("model", r.model);
  std::vector<std::string> names;
  for (const ModelShape& m : models()) names.push_back(m.name);
  require_choice("model", r.model, names, "'tpsim list models' shows all");
  if (given.count("reading") != 0) parse_readings(given.at("reading"), r);
  const std::string dtype = text("dtype", "f32");
  if (dtype == "f64")
    throw UsageError("the numeric reading does not run in f64",
                     "dtypes of the numeric reading are f32, bf16 and f16; its reference is f64 "
                     "already");
  require_choice("dtype", dtype, {"f32", "bf16", "f16"}, "dtypes are f32, bf16 and f16");
  r.dtype = dtype == "f32" ? DType::f32 : dtype == "bf16" ? DType::bf16 : DType::f16;
  r.seed = static_cast<std::uint64_t>(number("seed", text("seed", "1"), 0, Index{1} << 53));
  r.backend = text("backend", r.backend);
  require_choice("backend", r.backend, {"eigen", "cuda"}, "backends are eigen and cuda");
  if (r.backend == "cuda")
    throw UsageError("this tpsim was built without the CUDA backend", "use --backend eigen");
  r.comm = text("comm", r.comm);
  require_choice("communicator", r.comm, {"virtual", "mpi", "nccl"},
                 "communicators are virtual, mpi and nccl");
  if (r.comm != "virtual")
    throw UsageError(
        fmt::format("this tpsim was built without {}", r.comm == "mpi" ? "MPI" : "NCCL"),
        "use --comm virtual");

  r.fault = text("fault", "");
  r.toy = given.count("toy") != 0;
  r.weights = text("weights", "");
  r.module = text("module", "");
  if (!r.fault.empty()) {
    std::vector<std::string> faults_known;
    for (const Fault& f : faults()) faults_known.push_back(f.name);
    require_choice("fault", r.fault, faults_known, "'tpsim list faults' shows all");
  }
  if (r.all && given.count("disk") != 0)
    throw UsageError("--disk goes with one layer, not all",
                     "name the layer: " + or_list({"qkv", "merged", "mlp"}));
  if (!r.all) require_options_apply(given, layer);
  for (const std::string& one : r.all ? layer_names() : std::vector<std::string>{layer}) {
    // With a fault, `all` are the layers that can have it.
    if (r.all && !r.fault.empty() && !find_fault(r.fault)->applies_to(one)) continue;
    r.specs.push_back(build_spec(one, tp, given, r));
  }
  read_weights(given, r);
  return r;
}

Output parse_output(const Given& given) {
  Output o;
  o.json = given.count("json") != 0;
  o.quiet = given.count("quiet") != 0;
  o.verbose = given.count("verbose") != 0;
  const auto file = [&](const char* name) {
    const auto it = given.find(name);
    return it == given.end() ? std::string() : it->second;
  };
  o.html = file("html");
  o.junit = file("junit");
  if (const auto it = given.find("color"); it != given.end()) {
    require_choice("color", it->second, {"auto", "always", "never"},
                   "color is auto, always or never");
    o.color = it->second == "always"  ? Color::always
              : it->second == "never" ? Color::never
                                      : Color::automatic;
  }
  return o;
}

// The commands are `explain` and `list`, with one word each.
void require_command(const std::vector<std::string>& words) {
  const std::vector<std::string> commands{"explain", "list"};
  const bool known = std::find(commands.begin(), commands.end(), words[0]) != commands.end();
  if (known && words.size() <= 2) return;
  const std::string stray = words[known ? 2 : 0].substr(0, 60);
  const std::string near = known ? "" : nearest(stray, commands);
  if (known)
    throw UsageError(fmt::format("'{}' is one word too many", stray),
                     fmt::format("'tpsim {}' takes one word", words[0]));
  throw UsageError(fmt::format("'{}' is no option and no command", stray),
                   near.empty()
                       ? "the commands are explain and list; a check is tpsim --tp 4 --layer qkv"
                       : fmt::format("did you mean 'tpsim {}'?", near));
}

}  // namespace

bool wants_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
}

Request parse_command_line(const std::vector<std::string>& arguments) {
  Request request;
  if (arguments.empty()) {
    request.short_help = true;
    return request;
  }
  const auto [given, words] = split_command_line(arguments);
  request.output = parse_output(given);
  if (!words.empty()) {
    require_command(words);
    for (const auto& [name, value] : given)
      if (name != "json" && name != "color" && name != "quiet" && name != "verbose")
        throw UsageError(fmt::format("--{} is no option of '{}'", name, words[0]),
                         fmt::format("'{}' takes --json", words[0]));
    request.topic = words.size() > 1 ? words[1] : "";
    request.kind = words[0] == "list" ? Request::Kind::list : Request::Kind::explain;
    return request;
  }
  if (given.count("version") != 0) {
    request.kind = Request::Kind::version;
  } else if (given.count("help") != 0) {
    request.help_group = given.at("help");
    if (!request.help_group.empty())
      require_choice("option group", request.help_group, option_groups(),
                     fmt::format("groups are {}", fmt::join(option_groups(), ", ")));
  } else {
    request.kind = Request::Kind::layer;
    request.layer = parse_layer(given);
    request.layer.output = request.output;
  }
  return request;
}

}  // namespace tpsim::cli
