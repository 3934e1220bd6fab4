// SPDX-License-Identifier: MIT
// `tpsim run` as a user runs it: tokens, stages, JSON, and what cannot be asked.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/golden_model.hpp>
#include <tests/support/run_command.hpp>

#include <tpsim/layout/memory_values.hpp>

#include "sim/run_command.hpp"

namespace tpsim::test::run_command_tests {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

Keys keys(const Json& j) {
  Keys out;
  for (const auto& [key, value] : j.items()) out.push_back(key);
  return out;
}
std::string id_list(const std::vector<Index>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

std::vector<std::string> asked(const std::string& model, const std::string& line) {
  std::vector<std::string> words{"run", test_data(model).string()};
  for (const std::string& word : words_of(line)) words.push_back(word);
  return words;
}
Json run_of(const std::string& model, const std::string& line, int status = 0) {
  std::vector<std::string> words = asked(model, line);
  words.emplace_back("--json");
  const Ran ran = run_tpsim(words);
  CAPTURE(model, line, ran.out.substr(0, 3000), ran.err);
  CHECK(ran.status == status);
  CHECK(ran.err == "");
  return Json::parse(ran.out);
}

void refused(const std::vector<std::string>& words, const std::vector<std::string>& phrases) {
  const Ran ran = run_tpsim(words);
  CAPTURE(words, ran.out, ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(ran.err.starts_with("error: "));
  CHECK(count_of_text(ran.err, "error: ") == 1);
  std::string flat;
  for (const std::string& word : words_of(ran.err)) flat += word + " ";
  for (const std::string& phrase : phrases) {
    CAPTURE(phrase);
    CHECK(has(flat, phrase));
  }
}

}  // namespace

TEST_CASE("run: chooses the tokens and the logits of transformers at every tp", "[command]") {
  for (const auto& [model, tps] :
       std::vector<std::pair<std::string, std::vector<int>>>{{"tiny-llama", {1, 2, 6}},
                                                             {"tiny-qwen2", {4}},
                                                             {"tiny-gpt-neox", {3}},
                                                             {"tiny-mistral", {6}},
                                                             {"tiny-phi3", {2}}}) {
    const Golden golden(test_data(model));
    const auto wanted = golden.numbers("logits_f64");
    for (const int tp : tps)
      for (const std::string dtype : {"f32", "f64"}) {
        const Json j = run_of(model, fmt::format("--tp {} --tokens {} --generate 4 --dtype {}", tp,
                                                 id_list(golden.ids("tokens")), dtype));
        CAPTURE(model, tp, dtype);
        CHECK(j["result"] == "pass");
        CHECK(j["tokens"] == golden.ids("generated"));
        const Json& best = j["steps"][0]["top"][0];
        CHECK(best["id"] == golden.ids("generated")[0]);
        CHECK(std::abs(best["logit"].get<double>() - wanted(8, best["id"].get<Index>())) <
              (dtype == "f64" ? 1e-12 : 1e-5));
        for (const Json& stage : j["stages"]) {
          CHECK(stage["result"] == "pass");
          CHECK(stage["largest_ratio"].get<double>() <= 1);
        }
        CHECK(j["logits"].is_null() == (tp == 1));
        if (tp > 1) {
          CHECK(j["logits"]["largest_difference"].get<double>() < (dtype == "f64" ? 1e-13 : 1e-4));
          CHECK(j["logits"]["largest_ratio"].is_null() == (dtype == "f32"));
        }
      }
  }
}

TEST_CASE("run: JSON has the documented fields in order", "[command]") {
  const Json j = run_of("tiny-llama", "--tp 2 --tokens 3,0,14 --generate 3");
  CHECK(keys(j) == Keys{"schema", "version", "command", "result", "request", "model", "tokens",
                        "steps", "stages", "logits", "checks", "cost", "notes", "elapsed_s"});
  CHECK(j["schema"] == "tpsim.report/1");
  CHECK(j["command"] == "run");
  CHECK(keys(j["request"]) == Keys{"model", "plan", "tp", "tokens", "generate", "dtype",
                                   "all_reduce", "seed", "backend", "comm"});
  CHECK(j["request"]["tokens"] == Json{3, 0, 14});
  REQUIRE(j["steps"].size() == 3);
  CHECK(keys(j["steps"][0]) == Keys{"past", "tokens", "collectives", "wire_bytes_per_rank", "top"});
  // An embedding and two sums a layer, [3, 48] floats; the gather of [1, 192] logits.
  CHECK(j["steps"][0]["collectives"] == Json{{"all_reduce", 5}, {"gather", 1}});
  CHECK(j["steps"][0]["wire_bytes_per_rank"] == 5 * 3 * 48 * 4 + 192 * 4 / 2);
  CHECK(j["steps"][1]["wire_bytes_per_rank"] == 5 * 48 * 4 + 192 * 4 / 2);
  CHECK(j["steps"][2]["past"] == 4);
  CHECK(j["steps"][2]["tokens"] == 1);
  Keys stages;
  for (const Json& stage : j["stages"]) stages.push_back(stage["stage"]);
  CHECK(stages == Keys{"embedding", "layer 0", "layer 1", "norm and head"});
  CHECK(keys(j["stages"][1]) == Keys{"stage", "result", "compared", "outside", "without_bound",
                                     "largest_difference", "largest_ratio", "largest_place"});
  CHECK(keys(j["stages"][1]["largest_place"]) == Keys{"rank", "tensor", "token", "column"});
  // Of both ranks: the input of qkv, o, gate and up, down, and the output.
  CHECK(j["stages"][1]["compared"] == 2 * 5 * (48 + 24 + 48 + 18 + 48));
  CHECK(j["stages"][3]["compared"] == 2 * 5 * 48 + 5 * 131);
  Keys checks;
  for (const Json& c : j["checks"])
    checks.push_back(c["subject"].get<std::string>() + " " + c["id"].get<std::string>() + " " +
                     c["result"].get<std::string>());
  CHECK(checks == Keys{"decoder names pass", "decoder collectives pass", "decoder replicas pass",
                       "decoder rounding pass", "logits rounding skip"});
  CHECK(j["checks"][0]["compared"] == 21);
  CHECK(j["cost"]["kv_bytes_per_token_per_rank"] == Json{2 * 2 * 8 * 4, 2 * 2 * 8 * 4});
  CHECK(j["cost"]["weight_bytes_per_rank"].size() == 2);
}

TEST_CASE("run: two equal requests print the same", "[command]") {
  const std::string line = "--tp 2 --seed 7 --generate 2 --all-reduce ring --dtype bf16";
  Json a = run_of("tiny-qwen2", line), b = run_of("tiny-qwen2", line);
  a.erase("elapsed_s"), b.erase("elapsed_s");
  CHECK(a == b);
  CHECK(a["request"]["tokens"].size() == 8);
  const Json other = run_of("tiny-qwen2", "--tp 2 --seed 8 --dtype bf16");
  CHECK(other["request"]["tokens"] != a["request"]["tokens"]);
  CHECK(other["tokens"].empty());
}

TEST_CASE("run: text tells the tokens; quiet tells them and the verdict alone", "[command]") {
  const std::string line = "--tp 2 --tokens 3,0,14,130,9,26,5,35,50 --generate 4";
  const auto generated = Golden(test_data("tiny-llama")).ids("generated");
  const Ran ran = run_tpsim(asked("tiny-llama", line));
  CHECK(ran.status == 0);
  const std::string spaced = fmt::format("{}", fmt::join(generated, " "));
  for (const std::string& phrase :
       {"generated  " + spaced, std::string("plan llama, built in"), std::string("norm and head"),
        std::string("5 all_reduce, 1 gather"), std::string("4 checks passed")})
    CHECK(has(ran.out, phrase));
  const Ran quiet = run_tpsim(asked("tiny-llama", line + " -q"));
  CHECK(quiet.out.starts_with(spaced + "\ntp 2: 4 checks passed in "));
  CHECK(count_of_text(quiet.out, "\n") == 2);
}

TEST_CASE("run: writes HTML and JUnit files", "[command]") {
  const TempDir folder;
  const std::string html = folder.path() / "r.html", junit = folder.path() / "r.xml";
  const Ran ran =
      run_tpsim(asked("tiny-llama", "--tp 2 --tokens 1 --html " + html + " --junit " + junit));
  CHECK(ran.status == 0);
  CHECK(has(read_text(html), "<pre>tpsim "));
  CHECK(count_of_text(read_text(junit), "<testcase ") == 5);
  CHECK(count_of_text(read_text(junit), "<testsuite ") == 2);
}

TEST_CASE("run: a plan from a file is used", "[command]") {
  const TempDir folder;
  const std::filesystem::path plan = folder.write(
      "my.json",
      content_of(std::filesystem::path(TPSIM_SOURCE_DIR) / "sim" / "plans" / "llama.json"));
  const std::string line = "--tp 2 --tokens 3,0 --plan " + plan.string();
  CHECK(run_of("tiny-llama", line)["request"]["plan"] == plan.string());
  refused(asked("tiny-qwen2", line), {"model_type is 'qwen2'; the plan of llama serves llama"});
  refused(asked("tiny-llama", "--tp 2 --tokens 3 --plan /nowhere.json"), {"/nowhere.json"});
}

TEST_CASE("run: a tp that the plan alone forbids is refused as by check", "[command]") {
  std::string text =
      content_of(std::filesystem::path(TPSIM_SOURCE_DIR) / "sim" / "plans" / "llama.json");
  const std::string shared = "kv replicated";
  for (std::size_t at; (at = text.find(shared)) != std::string::npos;)
    text.replace(at, shared.size(), "kv even");
  const TempDir folder;
  const std::string plan = folder.write("my.json", text).string();
  // Six ranks would share two kv heads, which this plan does not.
  CHECK(run_tpsim(asked("tiny-llama", "--tp 6 --tokens 3,0 -q")).status == 0);
  refused(asked("tiny-llama", "--tp 6 --tokens 3,0 --plan " + plan),
          {"tp 6 cannot split this model", "tp can be 1 or 2"});
  refused({"check", test_data("tiny-llama").string(), "--tp", "6", "--plan", plan},
          {"tp 6 cannot split", "tp can be 1 or 2"});
}

TEST_CASE("run: what cannot be asked is refused with everything that is wrong", "[command]") {
  refused(asked("tiny-llama", "--tp 4 --tokens 1"),
          {"tp 4 cannot split this model", "6", "tp can be 1, 2 or 6"});
  refused(asked("tiny-llama", "--tp 5 --tokens 1"), {"heads", "36", "kv heads", "padded"});
  refused(asked("tiny-llama", "--tp 2 --tokens 1,131,5,200"),
          {"there is no token 131, 200; ids go from 0 to 130"});
  refused(asked("tiny-llama", "--tp 2 --tokens 1,-5"), {"--tokens -5 is out of range"});
  refused(asked("tiny-llama", "--tp 2 --tokens 1,,5"), {"--tokens '' is not a whole number"});
  refused(asked("tiny-llama", "--tp 2 --tokens 1,2 --generate 64"),
          {"2 tokens and 64 generated ones need 65 positions, the model has 64"});
  CHECK(run_tpsim(asked("tiny-llama", "--tp 1 --tokens 1,2 --generate 63 -q")).status == 0);
  refused(asked("tiny-llama", "--tp 2 --tokens 131 --generate 90"), {"no token 131", "positions"});
  refused(asked("tiny-llama", "--tp 2 --generate 5000"), {"--generate 5000 is out of range"});
  refused(asked("tiny-llama", "--tokens 1"), {"--tp is missing"});
  refused(asked("tiny-llama", "--tp 2 --heads 4"), {"--heads is no option of 'run'"});
  refused(asked("tiny-llama", "--tp 2 --dtype f8"), {"unknown dtype 'f8'"});
  refused(asked("tiny-llama", "--tp 2 --backend gpu"), {"unknown backend 'gpu'"});
  refused({"run"}, {"'tpsim run' needs a model"});
  refused({"run", "llama-3-8b", "--tp", "2"},
          {"there is no folder 'llama-3-8b'", "config.json and safetensors"});
  refused({"run", test_data("README.md").string(), "--tp", "2"}, {"is no folder"});
  refused({"--tp", "2", "--layer", "qkv", "--generate", "3"},
          {"--generate is no option of a layer check"});
  const TempDir empty;
  refused({"run", empty.path().string(), "--tp", "2"}, {"has no config.json"});
  empty.write("config.json", content_of(test_data("tiny-llama") / "config.json"));
  refused({"run", empty.path().string(), "--tp", "2"}, {"safetensors"});
  std::filesystem::copy_file(test_data("tiny-phi3") / "model.safetensors",
                             empty.path() / "model.safetensors");
  refused({"run", empty.path().string(), "--tp", "2"},
          {"are not those of its config.json", "'model.layers.0.mlp.gate_proj.weight' is missing",
           "'model.layers.1.mlp.gate_up_proj.weight' [72, 48] is in no rule"});
}

namespace {

/// The model with one tensor's numbers doubled.
StoredModel doubled(const cli::RunModel& m, const std::string& name) {
  StoredModel out = m.stored;
  for (auto& stored : out) {
    if (!stored || stored->name != name) continue;
    const Shape shape = stored->shape;
    std::vector<float> numbers(static_cast<std::size_t>(shape.size()));
    for (Index r = 0; r < shape.rows(); ++r)
      stored->values->read(
          r, 0,
          std::span<float>(numbers).subspan(static_cast<std::size_t>(r * shape.cols()),
                                            static_cast<std::size_t>(shape.cols())));
    for (float& x : numbers) x *= 2;
    auto changed = std::make_shared<StoredTensor>(*stored);
    changed->values = std::make_shared<MemoryValues>(shape, std::move(numbers));
    stored = std::move(changed);
  }
  return out;
}

}  // namespace

TEST_CASE("run: another weight on the ranks is found in the stage that it is in", "[command]") {
  cli::RunRequest request;
  request.model = test_data("tiny-llama").string();
  request.tp = 2, request.tokens = {3, 0, 14}, request.generate = 2;
  const cli::RunModel m = cli::open_run(request);
  CHECK(cli::run(request, m).passed());
  struct Case {
    std::string tensor, stage, where;
  };
  const std::vector<Case> cases{
      {"model.embed_tokens.weight", "embedding", "output"},
      {"model.layers.0.self_attn.k_proj.weight", "layer 0", "o_proj input"},
      {"model.layers.0.input_layernorm.weight", "layer 0", "qkv_proj input"},
      {"model.layers.1.mlp.up_proj.weight", "layer 1", "down_proj input"},
      {"model.layers.1.mlp.down_proj.weight", "layer 1", "output"},
      {"model.norm.weight", "norm and head", "lm_head input"},
      {"lm_head.weight", "norm and head", "output"}};
  for (const auto& [tensor, stage, where] : cases) {
    CAPTURE(tensor);
    const cli::RunResult r = cli::run(request, m, doubled(m, tensor));
    CHECK(!r.passed());
    for (const cli::RunStage& s : r.stages) CHECK(s.passed() == (s.name != stage));
    bool told = false;
    for (const auto& [about, check] : r.checks) {
      if (about != "decoder" || check.id != "rounding") continue;
      REQUIRE(check.findings.size() == 1);
      told = check.findings[0].message.starts_with(stage + ": ") &&
             check.findings[0].tensor == where && check.findings[0].rank >= 0;
    }
    CHECK(told);
    CHECK(r.logits->largest_difference > 1e-3);
    CHECK(has(cli::run_text(request, r, 0), "checks failed"));
    CHECK(Json::parse(cli::run_json(request, r, 0))["result"] == "fail");
  }
}

}  // namespace tpsim::test::run_command_tests
