// SPDX-License-Identifier: MIT
// `--backend cuda` as a user gives it, on the kernels' bodies: the layer check, check and run.
#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const std::string& line, int status = 0, const Environment& with = {}) {
  const Ran ran = run_line(line + " --json", with);
  CAPTURE(line, ran.out.substr(0, 2000), ran.err);
  CHECK(ran.status == status);
  CHECK(ran.err == "");
  return Json::parse(ran.out);
}
/// "rounding", "integer", ... of the layer check.
Json check_of(const Json& report, const std::string& id) {
  for (const Json& c : report.at("checks"))
    if (c["id"] == id && c["reading"] == "numeric") return c;
  FAIL("no check " << id);
  return {};
}

const std::string sizes =
    " --hidden 48 --heads 6 --kv-heads 2 --head-dim 8 --reading numeric --tokens 7 ";

TEST_CASE("cuda program: every layer is verified in every dtype and compares what the CPU does") {
  const std::vector<std::string> layers{
      "column --in 40 --out 24 --bias",
      "row --in 36 --out 20 --bias",
      "merged --hidden 24 --parts 12,8 --gather-output",
      "qkv" + sizes,
      "replicated --in 9 --out 7",
      "mlp --hidden 24 --intermediate 20",
      "embedding --hidden 16 --vocab 26",
      "lm_head --hidden 16 --vocab 26 --vocab-cut padded(8)",
      "lm_head --hidden 16 --vocab 26 --argmax",
      "norm --hidden 24",
      "attention --qk-norm full --window 3 --sinks --alibi" + sizes,
      "attention --chunk 2 --qk-norm head" + sizes,
      "decoder --intermediate 40" + sizes,
      "decoder --intermediate 40 --plain-mlp --activation gelu --norm layer --parallel-residual" +
          sizes};
  for (const std::string dtype : {"f32", "bf16", "f16"})
    for (const std::string& layer : layers) {
      std::string line = "--tp 2 --dtype " + dtype + " --layer " + layer;
      if (line.find("--reading") == std::string::npos) line += " --reading numeric --tokens 5";
      const Json cpu = json_of(line), gpu = json_of(line + " --backend cuda");
      CAPTURE(line);
      CHECK(gpu["request"]["backend"] == "cuda");
      CHECK(gpu["request"]["device"] == "host, 1 lanes");
      for (const std::string id : {"integer", "rounding", "replicas"}) {
        const Json a = check_of(cpu, id), b = check_of(gpu, id);
        CHECK(b["result"] == a["result"]);
        CHECK(b["compared"] == a["compared"]);
      }
    }
}

TEST_CASE("cuda program: a faulty layer is found by the same checks as on the CPU") {
  for (const std::string line :
       {"--tp 2 --layer row --in 36 --out 20 --fault missing-all-reduce",
        "--tp 2 --layer row --in 36 --out 20 --fault average-for-sum",
        "--tp 4 --layer qkv --hidden 24 --heads 8 --kv-heads 2 --head-dim 4 --fault kv-head-modulo",
        "--tp 2 --layer norm --heads 4 --kv-heads 4 --head-dim 8 --qk-norm full "
        "--fault norm-over-local-width",
        "--tp 2 --layer row --in 36 --out 20 --fault skipped-collective"}) {
    const std::string all = line + " --tokens 5 --reading numeric";
    const Json cpu = json_of(all, 1), gpu = json_of(all + " --backend cuda", 1);
    CAPTURE(line);
    for (const std::string id : {"integer", "rounding", "replicas"})
      CHECK(check_of(gpu, id)["result"] == check_of(cpu, id)["result"]);
    if (gpu.contains("counterexample") && gpu["counterexample"].is_object()) {
      const std::string command = gpu["counterexample"]["command"].dump();
      CHECK(has(command, R"("--backend","cuda")"));
    }
  }
}

TEST_CASE("cuda program: a device that computes wrongly is found") {
  const Environment off{{"TPSIM_HOST_OFF_BY", "0.5"}};
  const std::string line =
      "--tp 2 --layer column --in 40 --out 24 --tokens 5 --reading numeric --backend cuda";
  const Json j = json_of(line, 1, off);
  CHECK(check_of(j, "integer")["result"] == "fail");
  CHECK(check_of(j, "rounding")["result"] == "fail");
}

TEST_CASE("cuda program: lanes change nothing that is reported but the figures") {
  const std::string line = "--tp 2 --layer decoder --intermediate 40 --backend cuda" + sizes;
  const Json one = json_of(line), many = json_of(line, 0, {{"TPSIM_HOST_LANES", "32"}});
  CHECK(check_of(one, "rounding")["compared"] == check_of(many, "rounding")["compared"]);
  CHECK(check_of(one, "integer") == check_of(many, "integer"));
}

TEST_CASE("cuda program: run computes golden checkpoints on the device, stage by stage") {
  const std::vector<std::pair<std::string, std::string>> models{
      {"tiny-llama", "2"}, {"tiny-gpt-neox", "2"}, {"tiny-mistral", "3"}, {"tiny-qwen2", "2"}};
  for (const auto& [model, tp] : models)
    for (const std::string dtype : {"f32", "bf16", "f16"}) {
      const std::string line = "run " + test_data(model).string() + " --tp " + tp +
                               " --tokens 1,5,9,3 --generate 3 --dtype " + dtype;
      const Json cpu = json_of(line), gpu = json_of(line + " --backend cuda");
      CAPTURE(line);
      CHECK(gpu["request"]["backend"] == "cuda");
      CHECK(gpu["result"] == "pass");
      CHECK(gpu["stages"].size() == cpu["stages"].size());
      if (dtype == "f32") CHECK(gpu["tokens"] == cpu["tokens"]);
      for (const Json& stage : gpu["stages"]) CHECK(stage["compared"].get<std::int64_t>() > 0);
    }
  const std::string wrong =
      "run " + test_data("tiny-llama").string() + " --tp 2 --tokens 1,5 --backend cuda";
  CHECK(json_of(wrong, 1, {{"TPSIM_HOST_OFF_BY", "3"}})["result"] == "fail");
}

TEST_CASE("cuda program: check reads a checkpoint's numbers on the device") {
  const std::string line =
      "check " + test_data("tiny-llama").string() + " --tp 1,2 --reading numeric";
  const Json cpu = json_of(line), gpu = json_of(line + " --backend cuda");
  CHECK(gpu["request"]["backend"] == "cuda");
  REQUIRE(gpu["runs"].size() == cpu["runs"].size());
  for (std::size_t i = 0; i < gpu["runs"].size(); ++i)
    CHECK(gpu["runs"][i]["checks"].size() == cpu["runs"][i]["checks"].size());
  CHECK(json_of(line + " --backend cuda", 1, {{"TPSIM_HOST_OFF_BY", "3"}})["result"] == "fail");
}

TEST_CASE("cuda program: the text names the device") {
  const std::string folder = test_data("tiny-llama").string();
  for (const std::string& line :
       {std::string("--tp 2 --layer row --in 36 --out 20"), "run " + folder + " --tp 1 --tokens 1",
        "check " + folder + " --tp 1"}) {
    const Ran ran = run_line(line + " --backend cuda");
    CAPTURE(line, ran.out, ran.err);
    CHECK(ran.status == 0);
    std::string flat;  // a long title is wrapped
    for (const std::string& word : words_of(ran.out)) flat += word + " ";
    CHECK(has(flat, "backend cuda on host, 1 lanes"));
  }
}

TEST_CASE("cuda program: TF32 is used when it is asked for, and reported") {
  const std::string folder = test_data("tiny-llama").string();
  const Environment always{{"TPSIM_HOST_ALWAYS_TF32", "1"}};
  const std::string layer = "--tp 2 --layer decoder --intermediate 40" + sizes;
  for (const std::string& line : {layer, "run " + folder + " --tp 2 --tokens 1,5,9,3 --generate 3",
                                  "check " + folder + " --tp 2 --reading numeric --dtype f32"}) {
    const std::string on_device = line + " --backend cuda";
    CAPTURE(line);
    CHECK(json_of(on_device)["request"]["tf32"] == false);
    CHECK(json_of(on_device + " --tf32")["request"]["tf32"] == true);
    // A device that uses it unasked leaves the bound, which has no room for it.
    CHECK(json_of(on_device, 1, always)["result"] == "fail");
    CHECK(json_of(on_device + " --tf32", 0, always)["result"] == "pass");
    const Ran ran = run_line(on_device + " --tf32");
    bool named = false;
    for (const std::string& word : words_of(ran.out)) named = named || word == "tf32";
    CHECK(named);
  }
  const Json plain = json_of(layer + " --backend cuda"),
             cut = json_of(layer + " --backend cuda --tf32");
  CHECK(check_of(cut, "integer") == check_of(plain, "integer"));
  CHECK(check_of(cut, "rounding")["detection_floor"].get<double>() >
        10 * check_of(plain, "rounding")["detection_floor"].get<double>());
  CHECK_FALSE(json_of(layer)["request"].contains("tf32"));
  const Json faulty = json_of(
      "--tp 2 --layer row --in 36 --out 20 --fault missing-all-reduce --backend cuda --tf32", 1);
  CHECK(has(faulty["counterexample"]["command"].dump(), R"("--tf32")"));
}

TEST_CASE(
    "cuda program: without a device, and with what it does not have, it says so and exits 2") {
  const auto refused = [](const std::string& line, const std::string& what,
                          const Environment& with) {
    const Ran ran = run_line(line, with);
    CAPTURE(line, ran.out, ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out == "");
    CHECK(has(ran.err, what));
    CHECK(has(ran.err, "hint: "));
  };
  const Environment none{{"TPSIM_HOST_DEVICES", "0"}};
  const std::string folder = test_data("tiny-llama").string();
  for (const std::string& line : {std::string("--tp 2 --layer row"), "run " + folder + " --tp 1",
                                  "check " + folder + " --tp 1"}) {
    refused(line + " --backend cuda", "no CUDA device: the test says so", none);
    refused(line + " --backend gpu", "unknown backend 'gpu'", {});
  }
  refused("--tp 2 --layer row --fault bf16-sum --backend cuda", "--backend eigen", {});
  refused("run " + folder + " --tp 1 --backend cuda --dtype f64", "the CUDA backend has no f64",
          {});
  for (const std::string& line : {std::string("--tp 2 --layer row"), "run " + folder + " --tp 1",
                                  "check " + folder + " --tp 1"}) {
    refused(line + " --tf32", "--tf32 is about products of a GPU", {});
    refused(line + " --tf32 --backend cuda --dtype bf16", "the dtype is bf16", {});
  }
  refused("check " + test_data("tiny-qwen2").string() + " --tp 1 --tf32 --backend cuda",
          "the dtype is bf16", {});  // the checkpoint's
  refused("plan " + folder + " --tf32", "--tf32 is no option of 'plan'", {});
}

}  // namespace
}  // namespace tpsim::test
