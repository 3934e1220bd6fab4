// SPDX-License-Identifier: MIT
// config.json of models with experts, and the module that owns a checkpoint's tensors.
#include <tpsim/checkpoint/module.hpp>
#include <tpsim/checkpoint/moe_config.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::checkpoint_modules_tests {
namespace {

std::string moe_config(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "num_attention_heads": 8,
        "intermediate_size": 6, "num_hidden_layers": 2, "vocab_size": 8)" +
         more + "}";
}

TEST_CASE("moe config: defaults and biases follow each architecture") {
  const auto parse = [](const std::string& type, const std::string& more) {
    return parse_moe_config(moe_config(type, more), "config.json").value();
  };
  const MoeConfig mixtral = parse("mixtral", R"(, "num_local_experts": 4)");
  CHECK(mixtral.num_key_value_heads == 8);
  CHECK(mixtral.head_dim == 8);
  CHECK_FALSE(mixtral.attention_bias);
  CHECK_FALSE(mixtral.dtype.has_value());
  CHECK(mixtral.experts == 4);
  CHECK(mixtral.experts_per_token == 2);
  CHECK(mixtral.expert_intermediate == 6);
  const std::string experts = R"(, "num_experts": 16, "moe_intermediate_size": 3)";
  const MoeConfig qwen = parse("qwen3_moe", experts + R"(, "head_dim": null,
      "attention_bias": true, "torch_dtype": "bfloat16", "tie_word_embeddings": true,
      "num_experts_per_tok": 5, "decoder_sparse_step": 2)");
  CHECK(qwen.head_dim == 8);
  CHECK((qwen.attention_bias && !qwen.mlp_bias && qwen.tie_word_embeddings));
  CHECK(qwen.dtype == DType::bf16);
  CHECK(qwen.experts_per_token == 5);
  CHECK(qwen.dense_layers == 1);
  const MoeConfig oss = parse("gpt_oss", R"(, "num_local_experts": 32)");
  CHECK((oss.attention_bias && oss.mlp_bias));
  CHECK(oss.experts_per_token == 4);
  // The others have plans.
  for (const char* type : {"llama", "qwen3", "unknown"})
    CHECK_FALSE(parse_moe_config(moe_config(type, ""), "config.json"));
  CHECK_FALSE(parse_moe_config("{}", "config.json"));
}

TEST_CASE("moe config: every missing or bad key is named at once") {
  const auto bad = [](const std::string& json, const std::vector<std::string>& phrases) {
    return missing([&] { (void)parse_moe_config(json, "config.json"); }, phrases);
  };
  CHECK(bad(R"({"model_type": "mixtral"})",
            {"hidden_size is missing", "num_attention_heads is missing",
             "intermediate_size is missing", "num_hidden_layers is missing",
             "vocab_size is missing", "num_local_experts is missing"}) == "");
  CHECK(bad(R"({"model_type": "mixtral", "hidden_size": -4, "num_attention_heads": "8",
                "head_dim": 1.5, "intermediate_size": 1e30, "num_hidden_layers": 0,
                "vocab_size": 99999999999999999999, "attention_bias": 1, "dtype": "int4"})",
            {"hidden_size is '-4'; legal: an integer from 1 to 16777216",
             "num_attention_heads is '\"8\"'", "head_dim is '1.5'", "intermediate_size is '1e+30'",
             "num_hidden_layers is '0'; legal: an integer from 1 to 100000", "vocab_size is",
             "attention_bias is '1'; legal: true, false", "dtype 'int4' is unknown"}) == "");
  const std::string rest = R"(, "intermediate_size": 6, "num_hidden_layers": 1, "vocab_size": 8})";
  CHECK(bad(R"({"model_type": "mixtral", "hidden_size": 30, "num_attention_heads": 8,
                "num_key_value_heads": 3, "attention_bias": true, "mlp_bias": true,
                "dtype": "float32", "torch_dtype": "bfloat16")" +
                rest,
            {"num_attention_heads 8 is no multiple of num_key_value_heads 3",
             "hidden_size 30 does not divide by num_attention_heads 8", "mixtral has no biases",
             "mixtral has no MLP biases", "torch_dtype bfloat16 contradicts dtype"}) == "");
  CHECK(bad(R"({"model_type": "gpt_oss", "hidden_size": 4, "num_attention_heads": 16777216,
                "head_dim": 16777216, "attention_bias": false)" +
                rest,
            {"times head_dim 16777216 is over 16777216",
             "gpt_oss always has q, k, v and o biases"}) == "");
  CHECK(bad(R"({"hidden_size": 1, "hidden_size": 2})", {"'hidden_size' appears twice"}) == "");
  CHECK(bad(std::string(100'000, '['), {"nested deeper than 32"}) == "");
  CHECK(bad("[]", {"it holds array; it must be a JSON object"}) == "");
  CHECK(bad("{", {"it is not JSON"}) == "");
}

TEST_CASE("modules: names match by whole path components") {
  const TempDir dir;
  dir.write("config.json", small_config);
  std::string header = "{", data;
  for (const char* layer : {"1", "10"}) {
    const std::string name = std::string("model.layers.") + layer + ".self_attn.o_proj.weight";
    header += (data.empty() ? "\"" : ",\"") + name +
              R"(":{"dtype":"F32","shape":[4,4],"data_offsets":[)" + std::to_string(data.size()) +
              "," + std::to_string(data.size() + 64) + "]}";
    data += packed(std::vector<float>(16, static_cast<float>(std::stoi(layer))));
  }
  dir.write("model.safetensors", safetensors_bytes(header + "}", data));
  const Checkpoint checkpoint(dir.path());
  CHECK(checkpoint.children("model.layers.1") ==
        std::vector<std::string>{"model.layers.1.self_attn.o_proj.weight"});
  CHECK(checkpoint.children("model.layers").size() == 2);
  CHECK(checkpoint.children("model.layer").empty());
  const ModuleWeights one = read_module(checkpoint, "model.layers.10.self_attn.o_proj");
  CHECK(one.kind == ModuleKind::linear);
  std::vector<double> row(4);
  one.linears[0].weight.values->read(3, 0, std::span<double>(row));
  CHECK(row == std::vector<double>(4, 10.0));
}

TEST_CASE("modules: an unknown module names the nearest and a group names what is below") {
  const Checkpoint checkpoint(test_data("tiny-qwen3"));
  CHECK(read_module(checkpoint, "model.layers.0.mlp").kind == ModuleKind::mlp);
  CHECK(missing([&] { (void)read_module(checkpoint, "model.layers.0.self_atn"); },
                {"did you mean 'model.layers.0.self_attn'?"}) == "");
  CHECK(missing([&] { (void)read_module(checkpoint, "model.layers.0"); },
                {"is no linear layer, attention or MLP", "model.layers.0.mlp.gate_proj"}) == "");
  CHECK(missing([&] { (void)read_module(checkpoint, "model.norm.weight"); },
                {"is a tensor, not a module", "its module is 'model.norm'"}) == "");
  CHECK(missing([&] { (void)read_module(checkpoint, "model.norm"); },
                {"is [32]; a linear weight is [out, in]"}) == "");
  CHECK(missing([&] { (void)checkpoint.tensor("model.norm.wait"); },
                {"did you mean 'model.norm.weight'?"}) == "");
}

TEST_CASE("modules: weights that contradict the config are refused with all faults") {
  const TempDir dir;
  dir.write("config.json", small_config);
  const std::string p = "model.layers.0.self_attn.";
  dir.write("model.safetensors",
            safetensors_bytes("{" + entry(p + "q_proj.weight", "F32", "[4,3]", "[0,48]") + "," +
                                  entry(p + "k_proj.weight", "I8", "[2,4]", "[48,56]") + "," +
                                  entry(p + "q_proj.bias", "F32", "[3]", "[56,68]") + "}",
                              std::string(68, '\1')));
  const Checkpoint checkpoint(dir.path());
  CHECK(missing([&] { (void)read_module(checkpoint, "model.layers.0.self_attn"); },
                {"q_proj.weight' is [4, 3]; config.json says [4, 4]",
                 "q_proj.bias' exists, but by config.json there is no bias here",
                 "q_proj.bias' is [3]; it must be [4]", "k_proj.weight' is I8; weights can be",
                 "v_proj.weight' is missing"}) == "");
}

TEST_CASE("modules: a tensor that holds q, k and v is no single linear layer") {
  const Checkpoint checkpoint(test_data("tiny-phi3"));
  CHECK(read_module(checkpoint, "model.layers.0.mlp.down_proj").kind == ModuleKind::linear);
  CHECK(missing([&] { (void)read_module(checkpoint, "model.layers.0.self_attn.qkv_proj"); },
                {"qkv_proj.weight' holds several parts"}) == "");
}

}  // namespace
}  // namespace tpsim::test::checkpoint_modules_tests
