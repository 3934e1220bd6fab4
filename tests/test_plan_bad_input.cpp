// SPDX-License-Identifier: MIT
// Configs and command lines that `tpsim plan` refuses.
#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/llama_config.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::plan_bad_input_tests {
namespace {

using Json = nlohmann::ordered_json;

void refused(const std::string& content, const std::vector<std::string>& phrases) {
  const TempDir folder;
  const Ran ran = run_tpsim({"plan", folder.write("config.json", content).string()});
  CAPTURE(content.substr(0, 200), ran.out, ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(ran.err.starts_with("error: "));
  CHECK(ran.most_kib < 300 * 1024);  // a third of it without a sanitizer
  std::string flat;                  // as one line
  for (const std::string& word : words_of(ran.err)) flat += word + " ";
  for (const std::string& phrase : phrases) {
    CAPTURE(phrase);
    CHECK(has(flat, phrase));
  }
}
void refused(const Json& more, const std::vector<std::string>& phrases) {
  refused(llama_config(more).dump(), phrases);
}

}  // namespace

TEST_CASE("plan: bad configs are refused with everything that is wrong", "[command]") {
  refused(std::string("{}"),
          {"model_type is missing; there are plans for gpt_neox, internlm2, llama, mistral, phi3, "
           "qwen2, qwen3; of gpt_oss, mixtral, qwen3_moe sizes alone are known",
           "--plan FILE"});
  refused(std::string(R"({"model_type": "llama"})"),
          {"hidden_size is missing", "vocab_size is missing", "hidden_act is missing"});
  refused(Json{{"model_type", "lama"}}, {"model_type 'lama' has no plan", "did you mean llama?"});
  refused(Json{{"model_type", "mixtrall"}}, {"did you mean mixtral?"});
  refused(Json{{"hidden_size", 0}, {"vocab_size", -1}, {"num_hidden_layers", 1e9}},
          {"hidden_size is '0'", "vocab_size is '-1'", "num_hidden_layers is"});
  refused(Json{{"intermediate_size", 16777217}}, {"intermediate_size is '16777217'"});
  refused(Json{{"num_key_value_heads", 5}},
          {"num_attention_heads 32 / num_key_value_heads 5 leaves 2"});
  refused(Json{{"hidden_size", 16777216}, {"intermediate_size", 16777216}},
          {"weights; at most", "are the sizes in config.json right?"});
  refused(Json{{"model_type", "qwen3_moe"}},
          {"num_experts is missing", "moe_intermediate_size is missing"});
  refused(Json{{"model_type", "qwen3_moe"},
               {"num_experts", 4},
               {"moe_intermediate_size", 4},
               {"mlp_only_layers", {32}}},
          {"mlp_only_layers has an entry that is no layer; legal: 0 to 31"});
  const auto quantised = [](const Json& q) { return Json{{"quantization_config", q}}; };
  refused(quantised(3), {"quantization_config is '3'; legal: an object"});
  refused(quantised(Json::object()), {"quantization_config.quant_method is missing"});
  refused(quantised({{"quant_method", "hqq"}}), {"quant_method 'hqq' is unknown; known: gptq"});
  refused(quantised({{"quant_method", "gptq"}}), {"bits is missing", "group_size is missing"});
  refused(quantised({{"quant_method", "gptq"}, {"bits", 64}, {"group_size", 0}}),
          {"bits is '64'; legal: an integer from 1 to 8", "group_size is '0'"});
  for (const Json& block : {Json{0, 128}, Json{128}, Json{"a", "b"}, Json{-1, -1}})
    refused(quantised({{"quant_method", "fp8"}, {"weight_block_size", block}}),
            {"weight_block_size is no pair of positive integers"});
  refused(std::string("{"), {"it is not JSON"});
  refused(std::string(100'000, '['), {"nested deeper than 32"});
  refused(std::string("\x01\xff"), {"it is not JSON"});
  refused(Json{{"model_type", "qwen3_moe"},
               {"num_experts", 12},
               {"moe_intermediate_size", 768},
               {"num_experts_per_tok", 13}},
          {"num_experts_per_tok 13 is over the 12 experts"});
}

TEST_CASE("plan: a bad config is refused in the same words as by check and run", "[command]") {
  const std::vector<Json> wrong{
      {{"hidden_size", nullptr}, {"hidden_act", nullptr}, {"vocab_size", -1}},
      {{"num_key_value_heads", 5}, {"dtype", "float16"}, {"rms_norm_eps", "small"}},
      {{"model_type", "qwen2"}, {"attention_bias", false}},
      {{"model_type", "lama"}},
      {{"model_type", nullptr}},
      {{"rope_scaling", {{"rope_type", "longrope"}}}}};
  for (const Json& more : wrong) {
    const TempDir folder;
    folder.write("config.json", llama_config(more).dump());
    const std::string model = folder.path().string();
    const Ran plan = run_line("plan " + model), check = run_line("check " + model + " --tp 1"),
              run = run_line("run " + model + " --tp 1");
    CAPTURE(more.dump());
    CHECK(plan.status == 2);
    CHECK(has(plan.err, "error: cannot use"));
    CHECK(plan.err == check.err);
    CHECK(plan.err == run.err);
  }
  // Sizes of quantised weights can be planned; weights that cannot be loaded are refused.
  const TempDir folder;
  folder.write("config.json",
               llama_config({{"quantization_config", {{"quant_method", "fp8"}}}}).dump());
  CHECK(run_line("plan " + folder.path().string()).status == 0);
  CHECK(has(run_line("check " + folder.path().string() + " --tp 1").err, "quantised weights"));
}

TEST_CASE("plan: bad command lines are refused with a hint", "[command]") {
  const auto bad = [](const std::string& line, const std::vector<std::string>& phrases) {
    const Ran ran = run_line(line);
    CAPTURE(line, ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out == "");
    std::string flat;
    for (const std::string& word : words_of(ran.err)) flat += word + " ";
    for (const std::string& phrase : phrases) CHECK(has(flat, phrase));
  };
  bad("plan", {"'tpsim plan' needs a model", "tpsim plan llama-3-8b"});
  bad("plan llama-3-8", {"unknown model 'llama-3-8'", "did you mean 'llama-3-8b'?"});
  bad("plan /nonexistent/config.json", {"unknown model", "tpsim list models"});
  bad("plan /", {"folder '/' has no config.json"});
  bad("plan /dev/null", {"error: "});
  bad("plan llama-3-8b qwen3-8b", {"'qwen3-8b' is one word too many"});
  bad("plan llama-3-8b --rules vlm", {"unknown rules 'vlm'", "did you mean 'vllm'?"});
  bad("plan llama-3-8b --layer qkv", {"--layer is no option of 'plan'"});
  bad("plan llama-3-8b --tp 0", {"--tp 0 is out of range"});
  bad("plan llama-3-8b --tp 1,,2", {"--tp '' is not a whole number"});
  bad("plan llama-3-8b --tp 513", {"out of range", "--tp can be 1 to 512"});
  bad("plan llama-3-8b --ep 0", {"--ep 0 is out of range", "--ep can be 1 to 512"});
  for (const char* option : {"bandwidth", "flops", "link", "tokens"})
    bad(std::string("plan llama-3-8b --") + option + " 0", {"is out of range", "can be 1 to"});
  bad("plan llama-3-8b --latency -1", {"--latency"});
  bad("--tp 4 --layer qkv --link 25", {"--link is no option of a layer check", "'tpsim plan'"});
  bad("--tp 4 --layer qkv --ep 2", {"--ep is no option of a layer check"});
  bad("plan llama-3-8b --tp 2,4,2", {"--tp has 2 more than once"});
  bad("--tp 4 --layer qkv --rules vllm", {"--rules is no option of a layer check"});
  bad("plam llama-3-8b", {"did you mean 'tpsim plan'?"});
  const Ran json = run_line("plan llama-3-8 --json");
  CHECK(json.status == 2);
  CHECK(Json::parse(json.out)["result"] == "error");
}

}  // namespace tpsim::test::plan_bad_input_tests
