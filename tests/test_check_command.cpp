// SPDX-License-Identifier: MIT
// `tpsim check` as a user runs it: whole models, lists of tp, faults, and bad input.
#include <algorithm>

#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::check_command_tests {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::vector<std::string>;

Keys keys_of(const Json& j) {
  Keys out;
  for (const auto& [key, value] : j.items()) out.push_back(key);
  return out;
}

Json checked(const std::string& line, int status = 0) {
  const Ran ran = run_line("check " + line + " --json");
  CAPTURE(line, ran.out.substr(0, 2000), ran.err);
  REQUIRE(ran.status == status);
  CHECK(ran.err == "");
  return Json::parse(ran.out);
}

/// Stages and readings of a run: "layers.0 exact pass".
std::vector<std::string> said(const Json& run, const std::string& id) {
  std::vector<std::string> out;
  for (const Json& c : run["checks"])
    if (c["id"] == id)
      out.push_back(c["subject"].get<std::string>() + " " + c["reading"].get<std::string>() + " " +
                    c["result"].get<std::string>());
  return out;
}

std::string flat(const std::string& text) {
  std::string out;
  for (const std::string& word : words_of(text)) out += word + " ";
  return out;
}

std::vector<std::string> folders_with_weights() {
  std::vector<std::string> out;
  for (const auto& each : std::filesystem::directory_iterator(test_data("")))
    if (std::filesystem::exists(each.path() / "config.json")) out.push_back(each.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// A copy of a fixture that a test may spoil.
void copy_model(const TempDir& to, const std::string& name) {
  for (const auto& each : std::filesystem::directory_iterator(test_data(name)))
    std::filesystem::copy_file(each.path(), to.path() / each.path().filename());
}

}  // namespace

TEST_CASE("check: every built-in model passes at every legal tp to 8", "[command]") {
  const Ran listed = run_line("list models --json");
  REQUIRE(listed.status == 0);
  std::size_t models = 0;
  for (const char* name : {"llama-2-7b", "llama-3-8b", "llama-3-70b", "llama-3.1-405b",
                           "mistral-7b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-0.6b", "qwen3-8b",
                           "qwen3-32b", "phi-3-mini", "internlm2-7b", "pythia-6.9b"}) {
    CAPTURE(name);
    const Json j = checked(std::string(name) + " --tp all");
    CHECK(j["result"] == "pass");
    std::size_t legal = 0;
    for (const Json& run : j["runs"]) {
      if (run["legal"] == false) {
        CHECK_FALSE(run["broken"].empty());
        continue;
      }
      ++legal;
      CHECK(run["result"] == "pass");
      CHECK(run["first_divergence"].is_null());
      const std::vector<std::string> exact = said(run, "exact");
      CHECK(exact.size() == 5);
      for (const std::string& one : exact) CHECK(one.ends_with(" exact pass"));
      for (const Json& c : run["checks"]) CHECK(c["result"] != "fail");
    }
    CHECK(legal >= 3);
    CHECK(j["legal_tp"].size() == legal);
    CHECK(j["runs"].size() == 64);
    ++models;
  }
  CHECK(models == 13);
}

TEST_CASE("check: every checkpoint of the tests passes all readings at every legal tp",
          "[command]") {
  const std::vector<std::string> folders = folders_with_weights();
  REQUIRE(folders.size() >= 13);
  for (const std::string& folder : folders) {
    CAPTURE(folder);
    const Json j = checked(folder + " --tp all");
    CHECK(j["result"] == "pass");
    CHECK(j["checks"][0]["id"] == "names");
    CHECK(j["checks"][0]["result"] == "pass");
    REQUIRE(j["legal_tp"].size() >= 2);
    for (const Json& run : j["runs"]) {
      if (run["legal"] == false) continue;
      CHECK(run["result"] == "pass");
      // Every layer with its own numbers, and what is outside.
      const std::size_t layers = j["model"]["layers"];
      std::size_t passed = 0;
      for (const std::string& one : said(run, "rounding"))
        passed += one.ends_with(" numeric pass") ? 1 : 0;
      CHECK(passed == layers + 3);
    }
  }
}

TEST_CASE("check: JSON has the documented fields in order", "[command]") {
  const Json j = checked("llama-3-8b --tp 1,8 --reading static");
  CHECK(keys_of(j) == Keys{"schema", "version", "command", "result", "request", "model", "checks",
                           "runs", "legal_tp", "notes", "elapsed_s"});
  CHECK(j["command"] == "check");
  CHECK(j["request"]["tp"] == Json{1, 8});
  CHECK(j["request"]["reading"] == Json{"static"});
  CHECK(j["checks"][0]["id"] == "names");
  CHECK(j["checks"][0]["result"] == "skip");
  REQUIRE(j["runs"].size() == 2);
  const Json& eight = j["runs"][1];
  CHECK(keys_of(eight) ==
        Keys{"tp", "legal", "result", "checks", "first_divergence", "collectives", "cost"});
  CHECK(said(eight, "heads") == Keys{"embed_tokens static skip", "layers.0 static pass",
                                     "layers.0 decode static pass", "norm static skip",
                                     "lm_head static skip"});
  CHECK(said(eight, "exact").empty());
}

TEST_CASE("check: bytes and collectives are those of the whole model", "[command]") {
  const Json j = checked("llama-3-8b --tp 1,16 --reading static");
  // 8030261248 parameters of 2 bytes; 8 kv heads of 128 for k and v in 32 layers.
  CHECK(j["runs"][0]["cost"]["weight_bytes_per_rank"] == Json{16'060'522'496});
  CHECK(j["runs"][0]["cost"]["kv_bytes_per_token_per_rank"] == Json{131'072});
  CHECK(j["runs"][0]["collectives"].empty());
  const Json& sixteen = j["runs"][1];
  CHECK(sixteen["collectives"] ==
        Json{{{"op", "all_reduce"}, {"count", 65}, {"bytes_per_token", 8192}},
             {{"op", "gather"}, {"count", 1}, {"bytes_per_token", 128256 / 16 * 2}}});
  CHECK(said(sixteen, "collectives").back() == "model static pass");
  CHECK(sixteen["cost"]["kv_bytes_per_token_per_rank"][15] == 131'072 / 8);
  const Json neox = checked("pythia-6.9b --tp 2 --reading static");
  CHECK(neox["runs"][0]["collectives"][0]["count"] == 33);  // one for a parallel block
}

TEST_CASE("check: a tp of the list that is not legal is refused before anything runs",
          "[command]") {
  const Ran ran = run_line("check llama-3-8b --tp 1,3,5,8");
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  const std::string err = flat(ran.err);
  CHECK(has(err, "error: tp 3, 5 cannot split llama-3-8b"));
  CHECK(has(err, "tp 3: 32 query heads"));
  CHECK(has(err, "tp 5: 14336 intermediate columns"));
  CHECK(has(err, "hint: tp can be 1, 2, 4, 8, 16 or 32"));
}

TEST_CASE("check: all reports the tp that are not legal", "[command]") {
  const Ran ran = run_line("check llama-3-8b --tp all --reading static");
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "tp 3 is not possible"));
  CHECK(has(flat(ran.out), "32 query heads over 3 ranks leaves 2"));
  CHECK(has(ran.out, "tp 1, 2, 4, 8, 16, 32 passed"));
}

TEST_CASE("check: a fault is told by its first stage with rank and head and row", "[command]") {
  const Json j = checked("llama-3-8b --tp 2,16 --fault kv-head-modulo", 1);
  CHECK(j["result"] == "fail");
  // With fewer ranks than kv heads there is no head to share.
  CHECK(j["runs"][0]["result"] == "pass");
  const Json& first = j["runs"][1]["first_divergence"];
  CHECK(first["stage"] == "layers.0");
  CHECK(first["part"] == "self_attn.qkv_proj");
  CHECK(first["tensor"] == "self_attn.k_proj.weight");
  CHECK(first["reading"] == "static");
  CHECK(first["rank"] == 1);  // holds kv head 1 in place of 0
  CHECK(first["head"] == 0);
  CHECK(first["row"] == 0);

  const Ran ran = run_line("check llama-3-8b --tp 16 --fault kv-head-modulo");
  CHECK(ran.status == 1);
  CHECK(has(flat(ran.out),
            "tp 16 differs first at layers.0 self_attn.qkv_proj, rank 1, head 0, "
            "row 0 of self_attn.k_proj.weight"));
  CHECK(has(ran.out, "tp 16 failed"));
}

TEST_CASE("check: each stage finds a fault of its own", "[command]") {
  struct Case {
    const char *fault, *stage, *part;
  };
  for (const Case& c : {Case{"missing-all-reduce", "embed_tokens", ""},
                        Case{"average-for-sum", "layers.0", "self_attn.o_proj"},
                        Case{"scaled-by-rank-width", "layers.0", "self_attn"},
                        Case{"positions-restart", "layers.0 decode", "self_attn"}}) {
    CAPTURE(c.fault);
    for (const char* reading : {"static", "exact"}) {
      CAPTURE(reading);
      const Json j =
          checked("llama-3-8b --tp 4 --reading " + std::string(reading) + " --fault " + c.fault, 1);
      const Json& first = j["runs"][0]["first_divergence"];
      CHECK(first["stage"] == c.stage);
      CHECK(first["part"] == c.part);
      CHECK(first["reading"] == reading);
    }
  }
}

TEST_CASE("check: a fault that changes nothing in the model is said to", "[command]") {
  const Json j = checked("llama-3-8b --tp 4 --fault bias-on-every-rank");
  CHECK(j["notes"].dump().find("bias-on-every-rank changes nothing in this model") !=
        std::string::npos);
}

TEST_CASE("check: weights that contradict the plan are named all at once", "[command]") {
  const TempDir folder;
  copy_model(folder, "tiny-qwen3");
  // One layer more than the weights have: all of its tensors are missing.
  std::string config = read_text(folder.path() / "config.json");
  Json j = Json::parse(config);
  const int layers = j["num_hidden_layers"];
  j["num_hidden_layers"] = layers + 1;
  j["intermediate_size"] = j["intermediate_size"].get<int>() * 2;
  if (j.contains("layer_types")) j["layer_types"].push_back(j["layer_types"][0]);
  if (j.contains("max_window_layers")) j["max_window_layers"] = layers + 1;
  folder.write("config.json", j.dump());
  const Ran ran = run_line("check " + folder.path().string() + " --tp 1,2");
  CAPTURE(ran.out, ran.err);
  CHECK(ran.status == 1);
  const std::string out = flat(ran.out);
  CHECK(has(out, "model.layers." + std::to_string(layers) + ".self_attn.q_proj.weight"));
  CHECK(has(out, "model.layers.0.mlp.gate_proj.weight"));
  CHECK(has(out, "model.layers.0.mlp.down_proj.weight"));
  CHECK(has(out, "the weights contradict the plan"));
  CHECK(has(out, "no numeric reading"));
}

TEST_CASE("check: a file that cannot be read is an error", "[command]") {
  const TempDir folder;
  copy_model(folder, "tiny-qwen3");
  for (const auto& each : std::filesystem::directory_iterator(folder.path()))
    if (each.path().extension() == ".safetensors") std::filesystem::resize_file(each.path(), 100);
  const Ran ran = run_line("check " + folder.path().string() + " --tp 2");
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(ran.err.starts_with("error: "));
}

TEST_CASE("check: a plan of the user's is used or refused with all that is wrong", "[command]") {
  const TempDir folder;
  const std::string plans = TPSIM_SOURCE_DIR "/sim/plans/";
  CHECK(checked("llama-3-8b --tp 2 --plan " + plans + "llama.json")["result"] == "pass");
  std::string text = read_text(plans + "llama.json");
  const auto change = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  };
  change("\"k:kv*d\"", "\"k:kv*x\"");
  change("\"kv*g even\"", "\"kv*z even\"");
  const std::string file = folder.write("plan.json", text).string();
  const Ran ran = run_line("check llama-3-8b --tp 2 --plan " + file);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(has(ran.err, "x"));
  CHECK(has(ran.err, "z"));
  CHECK(run_line("check llama-3-8b --tp 2 --plan /nowhere.json").status == 2);
}

TEST_CASE("check: what cannot be asked is refused with what can", "[command]") {
  const auto refuses = [](const std::string& line, const std::string& phrase) {
    const Ran ran = run_line("check " + line);
    CAPTURE(line, ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out == "");
    CHECK(has(flat(ran.err), phrase));
  };
  refuses("", "'tpsim check' needs a model");
  refuses("llama-3-8b", "--tp is missing");
  refuses("lama-3-8b --tp 2", "did you mean 'llama-3-8b'?");
  refuses("llama-3-8b --tp 2,2", "--tp has 2 more than once");
  refuses("llama-3-8b --tp 0", "--tp 0 is out of range");
  refuses("llama-3-8b --tp 2,", "is not a whole number");
  refuses("llama-3-8b --tp 2 --layer qkv", "--layer is no option of 'check'");
  refuses("llama-3-8b --tp 2 --fault kv-head-modula", "did you mean 'kv-head-modulo'?");
  refuses("llama-3-8b --tp 2 --full --reading static", "--full is about the exact reading");
  refuses("llama-3-8b more --tp 2", "one word too many");
  // The options that the layer check has too, in its words.
  for (const char* option : {"--dtype f64", "--dtype bf61", "--all-reduce rings", "--seed -1",
                             "--seed 1.5", "--fault kv-head-modula"}) {
    const std::string layer = run_line(std::string("--tp 2 --layer qkv ") + option).err;
    const std::string check = run_line(std::string("check llama-3-8b --tp 2 ") + option).err;
    CAPTURE(option);
    CHECK(layer.starts_with("error: "));
    CHECK(layer == check);
  }
}

}  // namespace tpsim::test::check_command_tests
