// SPDX-License-Identifier: MIT
// The sizes of a model, from the config.json of a Hugging Face checkpoint.
#include <tpsim/checkpoint/model_config.hpp>

#include <algorithm>
#include <array>

#include "mapped_file.hpp"
#include "nearest.hpp"
#include "problems.hpp"
#include "strict_json.hpp"

namespace tpsim {
using namespace checkpoint_detail;

namespace {

// Two of these multiply to less than 2^49, so that bytes of a weight never overflow.
constexpr Index max_size = Index{1} << 24U;
constexpr Index max_layers = 100'000;
constexpr Index max_file = Index{16} << 20U;

const std::vector<std::string> known_types{"qwen3", "qwen2", "llama", "mistral"};

/// Reads keys of one config and notes what is wrong with each.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& json, Problems& problems)
      : json_(&json), problems_(&problems) {}

  /// The size, or 0 when it is absent or bad. `null` counts as absent, as in transformers.
  Index size(const char* key, bool required, Index limit = max_size) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) {
      if (required) problem(fmt::format("{} is missing", key));
      return 0;
    }
    const bool integer = value->is_number_integer();
    const bool fits =
        integer && (value->is_number_unsigned()
                        ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(limit)
                        : false);
    if (!fits || value->get<Index>() < 1) {
      problem(fmt::format("{} is {}; legal: an integer from 1 to {}", key, text(*value), limit));
      return 0;
    }
    return value->get<Index>();
  }

  bool flag(const char* key, bool absent) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) {
      problem(fmt::format("{} is {}; legal: true, false", key, text(*value)));
      return absent;
    }
    return value->get<bool>();
  }

  std::string word(const char* key) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_string()) {
      problem(fmt::format("{} is {}; legal: a string", key, text(*value)));
      return {};
    }
    return value->get<std::string>();
  }

  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }
  void problem(const std::string& message) { problems_->add("config", message); }

 private:
  [[nodiscard]] const nlohmann::json* find(const char* key) const {
    const auto it = json_->find(key);
    return it == json_->end() || it->is_null() ? nullptr : &*it;
  }
  static std::string text(const nlohmann::json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    return shown(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  const nlohmann::json* json_;
  Problems* problems_;
};

void read_model_type(ConfigReader& in, ModelConfig& config) {
  const std::string type = in.word("model_type");
  if (std::find(known_types.begin(), known_types.end(), type) != known_types.end()) {
    config.model_type = type;
    return;
  }
  const std::string near = nearest(type, known_types);
  const std::string meant = near.empty() ? "" : "; did you mean " + near + "?";
  if (!in.has("model_type"))
    in.problem(fmt::format("model_type is missing; known: {}", fmt::join(known_types, ", ")));
  else if (!type.empty())
    in.problem(fmt::format("model_type {} is unknown; known: {}{}", shown(type),
                           fmt::join(known_types, ", "), meant));
}

void read_heads(ConfigReader& in, ModelConfig& config) {
  config.num_attention_heads = in.size("num_attention_heads", true);
  config.num_key_value_heads = in.size("num_key_value_heads", false);
  config.head_dim = in.size("head_dim", false);
  const Index heads = config.num_attention_heads;
  if (heads == 0) return;
  if (!in.has("num_key_value_heads")) config.num_key_value_heads = heads;
  const Index kv_heads = config.num_key_value_heads;
  if (kv_heads > 0 && heads % kv_heads != 0)
    in.problem(fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}", heads,
                           kv_heads));
  if (!in.has("head_dim") && config.hidden_size > 0) {
    if (config.hidden_size % heads != 0)
      in.problem(
          fmt::format("head_dim is missing, and hidden_size {} does not divide by "
                      "num_attention_heads {}",
                      config.hidden_size, heads));
    config.head_dim = config.hidden_size / heads;
  }
  if (heads * config.head_dim > max_size)
    in.problem(fmt::format("num_attention_heads {} times head_dim {} is over {}", heads,
                           config.head_dim, max_size));
}

// Biases as transformers builds each architecture; a key that contradicts it is refused, because
// engines differ in which of the two they believe.
void read_biases(ConfigReader& in, ModelConfig& config) {
  const std::string& type = config.model_type;
  const bool attention = in.flag("attention_bias", type == "qwen2");
  config.mlp_bias = in.flag("mlp_bias", false);
  if (type == "qwen2" && !attention)
    in.problem("attention_bias is false, but qwen2 always has q, k and v biases");
  if (type == "mistral" && attention)
    in.problem("attention_bias is true, but mistral has no biases");
  if (!type.empty() && type != "llama" && config.mlp_bias)
    in.problem("mlp_bias is true, but only llama has MLP biases");
  config.qkv_bias = attention;
  config.o_bias = attention && type != "qwen2";
}

void read_dtype(ConfigReader& in, ModelConfig& config) {
  constexpr std::array<std::pair<std::string_view, DType>, 4> known{{{"float64", DType::f64},
                                                                     {"float32", DType::f32},
                                                                     {"bfloat16", DType::bf16},
                                                                     {"float16", DType::f16}}};
  for (const char* key : {"dtype", "torch_dtype"}) {
    const std::string word = in.word(key);
    if (word.empty()) continue;
    const auto* const it = std::find_if(known.begin(), known.end(),
                                        [&](const auto& pair) { return pair.first == word; });
    if (it == known.end())
      in.problem(fmt::format("{} {} is unknown; known: float64, float32, bfloat16, float16", key,
                             shown(word)));
    else if (config.dtype && *config.dtype != it->second)
      in.problem(fmt::format("torch_dtype {} contradicts dtype", word));
    else
      config.dtype = it->second;
  }
}

}  // namespace

ModelConfig parse_model_config(std::string_view json, const std::string& file_name) {
  const nlohmann::json parsed = parse_strict_json(json, file_name);
  Problems problems;
  ConfigReader in(parsed, problems);
  ModelConfig config;
  read_model_type(in, config);
  config.hidden_size = in.size("hidden_size", true);
  read_heads(in, config);
  config.intermediate_size = in.size("intermediate_size", true);
  config.num_hidden_layers = in.size("num_hidden_layers", true, max_layers);
  config.vocab_size = in.size("vocab_size", true);
  read_biases(in, config);
  config.tie_word_embeddings = in.flag("tie_word_embeddings", false);
  read_dtype(in, config);
  problems.throw_if_any("cannot use " + shown(file_name));
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& file) {
  const MappedFile mapped(file, max_file);
  return parse_model_config(mapped.text(), file.string());
}

}  // namespace tpsim
