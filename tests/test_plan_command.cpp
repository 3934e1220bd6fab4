// SPDX-License-Identifier: MIT
// `tpsim plan` as a user runs it: JSON, and configs from files. Its text is among the terminal
// sessions of test_command.cpp.
#include <cmath>

#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/llama_config.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::plan_command_tests {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

Keys keys(const Json& j) {
  Keys out;
  for (const auto& [key, value] : j.items()) out.push_back(key);
  return out;
}

Json plan_json(const std::string& line) {
  const Ran ran = run_line("plan " + line + " --json");
  CHECK(ran.status == 0);
  CHECK(ran.err == "");
  return Json::parse(ran.out);
}

std::vector<int> legal(const std::string& line) { return plan_json(line)["legal_tp"]; }

}  // namespace

TEST_CASE("plan: JSON has the documented fields in order", "[command]") {
  const Json j = plan_json("llama-3-8b --tp 3,8,16");
  CHECK(keys(j) == Keys{"schema", "version", "command", "result", "request", "model", "runs",
                        "legal_tp", "notes", "elapsed_s"});
  CHECK(j["command"] == "plan");
  CHECK(j["result"] == "pass");
  CHECK(j["request"] == Json{{"model", "llama-3-8b"},
                             {"rules", "vllm"},
                             {"tp", {3, 8, 16}},
                             {"tokens", 1024},
                             {"bandwidth", 3350},
                             {"flops", 989},
                             {"link", 450},
                             {"latency", 10}});
  CHECK(j["legal_tp"] == Json{8, 16});
  CHECK(j["model"]["weight_bytes"] == 16'060'522'496);  // 8030261248 parameters of 2 bytes

  const Json& three = j["runs"][0];
  CHECK(keys(three) == Keys{"tp", "legal", "broken", "padding"});
  CHECK(three["legal"] == false);
  CHECK(three["broken"].size() == 3);
  for (const Json& broken : three["broken"])
    CHECK(keys(broken) == Keys{"id", "message", "fix", "source"});
  CHECK(three["broken"][0]["id"] == "divide");
  CHECK(three["broken"][0]["message"] == "32 query heads over 3 ranks leaves 2");
  CHECK(three["broken"][0]["fix"] == "pad 32 query heads to 36 and 8 kv heads to 9");
  CHECK(three["broken"][1]["fix"] == three["broken"][0]["fix"]);
  CHECK(three["padding"][0] == Json{{"message", three["broken"][0]["fix"]},
                                    {"heads", 36},
                                    {"kv_heads", 9},
                                    {"added_weight_bytes", 10 * 128 * 4096 * 2 * 32}});
  CHECK(three["padding"][1]["intermediate"] == 14337);

  const Json& eight = j["runs"][1];
  CHECK(keys(eight) == Keys{"tp", "legal", "broken", "collectives", "cost", "estimate"});
  CHECK(keys(eight["estimate"]) == Keys{"seconds_per_token", "seconds_per_prompt"});
  CHECK(eight["broken"].empty());
  CHECK(eight["collectives"][0] ==
        Json{{"op", "all_reduce"}, {"count", 65}, {"bytes_per_token", 8192}});
  CHECK(keys(eight["cost"]) == Keys{"weight_bytes_per_rank", "sharded_bytes_per_rank",
                                    "replicated_bytes_per_rank", "kv_bytes_per_token_per_rank",
                                    "wire_bytes_per_token_per_rank"});
  for (const auto& [key, list] : eight["cost"].items()) CHECK(list.size() == 8);
  CHECK(eight["cost"]["weight_bytes_per_rank"][7] == 2'007'498'752 + 532'480);
  const Json& sixteen = j["runs"][2]["cost"];
  CHECK(sixteen["replicated_bytes_per_rank"][15] == 67'641'344);  // shared kv heads and norms
  CHECK(sixteen["kv_bytes_per_token_per_rank"][0] == 16'384);
}

TEST_CASE("plan: each engine has its own answer", "[command]") {
  CHECK(legal("llama-3-8b --rules nano-vllm") == std::vector<int>{1, 2, 4, 8});
  CHECK(legal("llama-3-8b --rules vllm") == std::vector<int>{1, 2, 4, 8, 16, 32});
  CHECK(legal("llama-3-8b") == legal("llama-3-8b --rules vllm"));
  CHECK(legal("qwen2.5-7b --rules transformers") == std::vector<int>{1, 2, 4});
  CHECK(legal("qwen2.5-7b --rules vllm") == std::vector<int>{1, 2, 4});  // 4 kv heads, 28 q heads
}

TEST_CASE("plan: built-in shapes have the published number of parameters", "[command]") {
  const std::vector<std::pair<const char*, std::int64_t>> published{
      {"llama-2-7b", 6'738'415'616},   {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496}, {"llama-3.1-405b", 405'853'388'800},
      {"mistral-7b", 7'241'732'096},   {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-72b", 72'706'203'648}, {"qwen3-0.6b", 596'049'920},
      {"qwen3-8b", 8'190'735'360},     {"qwen3-32b", 32'762'123'264},
      {"phi-3-mini", 3'821'079'552},   {"internlm2-7b", 7'737'708'544},
      {"pythia-6.9b", 6'857'302'016}};
  for (const auto& [name, parameters] : published) {
    CAPTURE(name);
    CHECK(plan_json(std::string(name) + " --tp 1")["model"]["weight_bytes"] == 2 * parameters);
  }
  CHECK(plan_json("qwen3-0.6b --tp 1")["model"]["tied"] == true);
}

TEST_CASE("plan: collectives are those of the static trace of each built-in model", "[command]") {
  const Json list = Json::parse(run_line("list models --json").out)["models"];
  CHECK(list.size() >= 13);
  for (const Json& entry : list) {
    const std::string model = entry["name"];
    CAPTURE(model);
    const Ran ran =
        run_line("--tp 2 --layer decoder --reading static --tokens 1 --json --model " + model);
    REQUIRE(ran.status == 0);
    const Json planned = plan_json(model + " --tp 2");
    const Json& all = planned["runs"][0]["collectives"];
    REQUIRE(all.size() == 2);
    std::int64_t traced = 1;  // the embedding's
    const Json layer = Json::parse(ran.out);
    for (const Json& c : layer["collectives"]) {
      CHECK(c["op"] == "all_reduce");
      CHECK(c["shape"][1] == planned["model"]["hidden"]);
      traced += planned["model"]["layers"].get<std::int64_t>();
    }
    CHECK(all[0]["op"] == "all_reduce");
    CHECK(all[0]["count"] == traced);
    CHECK(all[0]["bytes_per_token"] == 2 * planned["model"]["hidden"].get<std::int64_t>());
  }
  // 32 layers with a parallel residual, which a config may switch off.
  CHECK(plan_json("pythia-6.9b --tp 2")["runs"][0]["collectives"][0]["count"] == 33);
  CHECK(plan_json("pythia-6.9b --tp 2")["notes"].size() == 1);
  const TempDir folder;
  const auto neox = [&](const Json& more) {
    Json config = llama_config(more);
    config["model_type"] = "gpt_neox", config["num_key_value_heads"] = nullptr;
    const std::string file = folder.write("config.json", config.dump()).string();
    return plan_json(file + " --tp 2")["runs"][0]["collectives"][0]["count"];
  };
  CHECK(neox(Json::object()) == 33);
  CHECK(neox({{"use_parallel_residual", false}}) == 65);
}

TEST_CASE("plan: a folder, its config and a built-in shape give the same answer", "[command]") {
  const TempDir folder;
  const std::string file = folder.write("config.json", llama_config().dump()).string();
  Json built_in = plan_json("llama-3-8b");
  for (const std::string& model : {file, folder.path().string()}) {
    const Json j = plan_json(model);
    CHECK(j["runs"] == built_in["runs"]);
    CHECK(j["model"] == built_in["model"]);
  }
  CHECK(legal(test_data("tiny-qwen3").string()) == std::vector<int>{1, 2, 4, 8});
}

TEST_CASE("plan: every model type and quantisation is read", "[command]") {
  const auto answer = [](const Json& more) {
    const TempDir folder;
    return plan_json(folder.write("config.json", llama_config(more).dump()).string());
  };
  const auto legal_of = [&](const Json& more) {
    return answer(more)["legal_tp"].get<std::vector<int>>();
  };
  using Tps = std::vector<int>;
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "phi3", "internlm2", "gpt_neox"})
    CHECK(legal_of({{"model_type", type}}) == Tps{1, 2, 4, 8, 16, 32});
  const Json moe{{"model_type", "qwen3_moe"}, {"num_experts", 128}, {"moe_intermediate_size", 768}};
  CHECK(answer(moe)["model"]["expert_intermediate"] == 768);
  Json fp8 = moe;
  fp8["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  CHECK(legal_of(fp8) == Tps{1, 2});
  fp8["mlp_only_layers"] = Json::array();  // all layers dense: no expert is cut
  for (int i = 0; i < 32; ++i) fp8["mlp_only_layers"].push_back(i);
  CHECK(legal_of(fp8) == Tps{1, 2, 4, 8, 16});  // 14336 = 112 * 128
  CHECK(legal_of({{"model_type", "mixtral"}, {"num_local_experts", 8}}) == Tps{1, 2, 4, 8});
  CHECK(legal_of({{"model_type", "gpt_oss"},
                  {"num_local_experts", 128},
                  {"intermediate_size", 2880},
                  {"quantization_config", {{"quant_method", "mxfp4"}}}}) == Tps{1, 2, 4, 8});
  CHECK(legal_of({{"quantization_config",
                   {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}}}) ==
        Tps{1, 2, 4, 8, 16});
  CHECK(legal_of({{"quantization_config",
                   {{"quant_method", "awq"}, {"bits", 4}, {"group_size", -1}}}}) ==
        Tps{1, 2, 4, 8, 16, 32});
  CHECK(answer({{"torch_dtype", nullptr}})["notes"].size() == 1);
}

TEST_CASE("plan: expert parallelism is planned where there are experts", "[command]") {
  const TempDir folder;
  const auto file = [&](const Json& more) {
    return folder.write("config.json", llama_config(more).dump()).string();
  };
  const Json moe{{"model_type", "qwen3_moe"}, {"num_experts", 12}, {"moe_intermediate_size", 768}};
  const Json j = plan_json(file(moe) + " --tp 1,2,3,4 --ep 8");
  CHECK(j["request"]["ep"] == 8);
  CHECK(j["model"]["experts_per_token"] == 8);  // what transformers takes without the key
  CHECK(j["legal_tp"] == Json{1, 2, 4});
  CHECK(j["runs"][1]["experts_per_rank"] == Json{2, 2, 2, 2, 1, 1, 1, 1});
  CHECK(j["runs"][1]["cost"]["weight_bytes_per_rank"].size() == 8);
  bool told = false;
  for (const Json& rule : j["runs"][2]["broken"])
    told = told || rule["message"] == "ep 8 is no multiple of tp 3; ep can be 3, 6, 9 or 12";
  CHECK(told);
  CHECK(plan_json(file(moe) + " --tp 2 --ep 8 --rules megatron")["legal_tp"].empty());
  CHECK(plan_json(file(moe) + " --tp 2 --ep 6 --rules megatron")["legal_tp"] == Json{2});
  CHECK_FALSE(plan_json(file(moe) + " --tp 2")["runs"][0].contains("experts_per_rank"));
  const Ran text = run_line("plan " + file(moe) + " --tp 2 --ep 8");
  CHECK(has(text.out, "rules vllm  ep 8  dtype bf16"));
  CHECK(has(text.out, "tp 2: 8 ranks, 1 or 2 experts of a layer each"));

  const Ran none = run_line("plan llama-3-8b --ep 2");
  CHECK(none.status == 2);
  CHECK(has(none.err, "error: --ep 2: llama-3-8b has no experts"));
}

TEST_CASE("plan: estimated times follow the figures of the device", "[command]") {
  const auto seconds = [](const std::string& options, const char* of) {
    const Json j = plan_json("llama-3-8b --tp 8 " + options);
    return j["runs"][0]["estimate"][of].get<double>();
  };
  const auto per_token = [&](const std::string& o) { return seconds(o, "seconds_per_token"); };
  const auto per_prompt = [&](const std::string& o) { return seconds(o, "seconds_per_prompt"); };
  const auto near = [](double a, double b) { return std::abs(a - b) < 1e-9 * b; };
  const double token = per_token(""), prompt = per_prompt("");
  // 1.9 GB of weights and 67 MB of cache at 3.35 TB/s; 66 collectives of 10 us; 1.2 MB sent.
  CHECK(near(token, (2'007'498'752 + 532'480 - 16032 * 4096 * 2 + 8192 + 1025 * 16384) / 3350e9 +
                        66 * 10e-6 + (65 * 14336 + 224448) / 450e9));
  CHECK(near(per_token("--latency 0"), token - 66 * 10e-6));
  CHECK(per_token("--bandwidth 1000") > 2 * token);
  CHECK(per_token("--flops 100") == token);  // reading takes longer than computing
  CHECK(per_prompt("--flops 100") > 4 * prompt);
  CHECK(per_prompt("--bandwidth 9000") == prompt);
  CHECK(per_prompt("--link 45") > prompt);
  CHECK(per_prompt("--tokens 2048") > 1.5 * prompt);
  CHECK(per_token("--tokens 2048") > token);
  CHECK(plan_json("llama-3-8b --tp 8 --flops 100")["request"]["flops"] == 100);

  const Ran usual = run_line("plan llama-3-8b --tp 8"),
            other = run_line("plan llama-3-8b --tp 8 --link 25");
  CHECK(has(usual.out, "(H100 SXM)"));
  CHECK_FALSE(has(other.out, "H100"));
  CHECK(has(other.out, "25 GB/s"));
}

TEST_CASE("plan: all tp up to 512 take no memory to speak of", "[command]") {
  std::string all = "1";
  for (int tp = 2; tp <= 512; ++tp) all += "," + std::to_string(tp);
  for (const char* model : {"llama-3.1-405b", "qwen2.5-72b", "phi-3-mini"})
    for (const char* rules : {"nano-vllm", "vllm", "megatron", "transformers"}) {
      const Ran ran =
          run_line(std::string("plan ") + model + " --rules " + rules + " -q --tp " + all);
      CAPTURE(model, rules);
      CHECK(ran.status == 0);
      CHECK(ran.most_kib < 300 * 1024);  // a third of it without a sanitizer
    }
}

}  // namespace tpsim::test::plan_command_tests
