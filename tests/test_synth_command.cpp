// SPDX-License-Identifier: MIT
// `tpsim synth` as a user runs it: JSON, text, refusals, and what is left after it was stopped.
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include <tpsim/core/shape.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::synth_command_tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string tiny =
    " --layers 1 --hidden 32 --heads 4 --kv-heads 2 --intermediate 24 --vocab 40";

std::vector<std::string> keys_of(const Json& j) {
  std::vector<std::string> out;
  for (const auto& [key, value] : j.items()) out.push_back(key);
  return out;
}
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out.insert(entry.path().filename().string());
  return out;
}

void refused(const std::string& line, const std::vector<std::string>& phrases) {
  CAPTURE(line);
  const Ran ran = run_line(line);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(ran.err.starts_with("error: "));
  std::string flat;  // as one line
  for (const std::string& word : words_of(ran.err)) flat += word + " ";
  CAPTURE(flat);
  for (const std::string& phrase : phrases) CHECK(has(flat, phrase));
}

}  // namespace

TEST_CASE("synth command: JSON has the documented fields in order", "[command][synth]") {
  const TempDir folder;
  const std::string out = folder.path() / "new";
  const Ran ran = run_line("synth llama-3-8b --out " + out + tiny +
                           " --seed 5 --dtype f32 --max-shard-size 10KB --json");
  CHECK(ran.status == 0);
  CHECK(ran.err == "");
  const Json j = Json::parse(ran.out);
  CHECK(keys_of(j) == std::vector<std::string>{"schema", "version", "command", "result", "request",
                                               "model", "files", "written", "notes", "elapsed_s"});
  CHECK(j["command"] == "synth");
  CHECK(j["result"] == "pass");
  CHECK(j["request"] == Json::parse(R"({"model": "llama-3-8b", "out": ")" + out + R"(",
      "sizes": {"layers": 1, "hidden": 32, "heads": 4, "kv_heads": 2, "intermediate": 24,
                "vocab": 40},
      "dtype": "f32", "seed": 5, "max_shard_size": 10000, "force": false})"));
  CHECK(j["model"] == Json::parse(R"({"architecture": "llama", "hidden": 32, "intermediate": 24,
      "layers": 1, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 40, "tied": false,
      "dtype": "f32"})"));
  std::set<std::string> names;
  Index bytes = 0, tensors = 0;
  for (const Json& f : j["files"]) {
    CHECK(keys_of(f) == std::vector<std::string>{"name", "bytes", "tensors"});
    names.insert(f["name"].get<std::string>());
    CHECK(static_cast<Index>(fs::file_size(fs::path(out) / f["name"].get<std::string>())) ==
          f["bytes"].get<Index>());
    bytes += f["bytes"].get<Index>(), tensors += f["tensors"].get<Index>();
  }
  CHECK(names == names_in(out));
  const Index parameters = 2 * 40 * 32 + 3 * 32 + 32 * (32 + 16 + 16 + 32) + 3 * 24 * 32;
  CHECK(j["written"] == Json{{"files", names.size()},
                             {"bytes", bytes},
                             {"tensors", 12},
                             {"parameters", parameters},
                             {"tensor_bytes", 4 * parameters}});
  CHECK(tensors == 12);
}

TEST_CASE("synth command: the text says what was written", "[command][synth]") {
  const TempDir folder;
  const Ran ran = run_line("synth qwen3-0.6b --out " + folder.path().string() + tiny);
  CHECK(ran.status == 0);
  CHECK(ran.err == "");
  CHECK(has(ran.out,
            "synth  seed 1  dtype bf16  model qwen3-0.6b\nhidden 32, intermediate 24, "
            "layers 1, heads 4, kv heads 2,"));
  CHECK(has(ran.out, "wrote " + folder.path().string() + "\n  config.json "));
  CHECK(has(ran.out, "\n13 tensors, "));
  CHECK(names_in(folder.path()) == std::set<std::string>{"config.json", "model.safetensors"});
  const Ran quiet = run_line("synth qwen3-0.6b -q --force --out " + folder.path().string() + tiny);
  CHECK(quiet.status == 0);
  CHECK(quiet.out.starts_with("13 tensors, "));
}

TEST_CASE("synth command: a checkpoint is not overwritten without --force", "[command][synth]") {
  const TempDir folder;
  const std::string line = "synth llama-3-8b --out " + folder.path().string() + tiny;
  CHECK(run_line(line).status == 0);
  const std::string before = read_text(folder.path() / "model.safetensors");
  refused(line + " --seed 2", {"a checkpoint is in", "would be overwritten", "--force"});
  CHECK((read_text(folder.path() / "model.safetensors") == before));
  CHECK(run_line(line + " --seed 2 --force").status == 0);
  CHECK((read_text(folder.path() / "model.safetensors") != before));
  CHECK(run_line(line + " --force").status == 0);
  CHECK((read_text(folder.path() / "model.safetensors") == before));
}

TEST_CASE("synth command: a plan of the user's says what is written", "[command][synth]") {
  const TempDir folder;
  std::string plan = read_text(TPSIM_SOURCE_DIR "/sim/plans/llama.json");
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = plan.find(from, at)) != std::string::npos; at += to.size())
      plan.replace(at, from.size(), to);
  };
  replace("\"llama\"", "\"other\"");
  replace("mlp.down_proj.weight\": {", "mlp.w2.weight\": {\"into\": \"mlp.down_proj\", ");
  const std::string file = folder.write("plan.json", plan).string();
  Json config = Json::parse(small_config);
  config["model_type"] = "other";
  const std::string model = folder.write("config.json", config.dump()).string();
  refused("synth " + model + " --out " + (folder.path() / "no").string(),
          {"model_type 'other' has no plan", "--plan FILE"});
  const std::string out = folder.path() / "new";
  const Ran ran =
      run_line("synth " + model + " --plan " + file + " --layers 2 --json --out " + out);
  CHECK(ran.status == 0);
  const Json j = Json::parse(ran.out);
  CHECK(j["request"]["plan"] == file);
  CHECK(j["model"]["architecture"] == "other");
  CHECK(j["model"]["layers"] == 2);
  CHECK(has(read_text(fs::path(out) / "model.safetensors"), "model.layers.1.mlp.w2.weight"));
  const Ran check = run_line("check " + out + " --tp 1 --plan " + file);
  CHECK(check.status == 0);
  CHECK(has(check.out, "tensors read once"));
  // What the plan does not serve, and no JSON.
  refused("synth llama-3-8b --plan " + file + tiny + " --out " + (folder.path() / "no").string(),
          {"model_type is 'llama'; the plan of other serves other"});
  refused("synth " + folder.write("bad.json", "[1]").string() + " --plan " + file + " --out " +
              (folder.path() / "no").string(),
          {"it must be a JSON object"});
  CHECK_FALSE(fs::exists(folder.path() / "no"));
}

TEST_CASE("synth command: what cannot be asked is refused", "[command][synth]") {
  const TempDir folder;
  const std::string out = " --out " + (folder.path() / "new").string();
  refused("synth", {"'tpsim synth' needs a model"});
  refused("synth llama-3-8b", {"needs --out DIR"});
  refused("synth llama-3-9b" + out, {"unknown model 'llama-3-9b'", "did you mean 'llama-3-8b'?"});
  refused("synth llama-3-8b --tp 2" + out, {"--tp is no option of 'synth'"});
  refused("synth llama-3-8b --layers 0" + out, {"--layers 0 is out of range"});
  refused("synth llama-3-8b --dtype int8" + out, {"unknown dtype 'int8'"});
  refused("synth llama-3-8b --max-shard-size 5XB" + out, {"--max-shard-size '5XB' is no size"});
  refused("synth llama-3-8b --max-shard-size GB" + out, {"--max-shard-size 'GB' is no size"});
  refused("synth llama-3-8b --max-shard-size 0" + out, {"--max-shard-size 0 is out of range"});
  refused("synth llama-3-8b --max-shard-size 99999999TB" + out, {"is out of range"});
  refused("synth llama-3-8b --heads 5" + out,
          {"cannot use 'llama-3-8b'", "hidden_size 4096 / num_attention_heads 5 leaves 1"});
  refused("synth pythia-6.9b --kv-heads 2" + out, {"gpt_neox has no --kv-heads"});
  refused("synth internlm2-7b --head-dim 64" + out,
          {"--head-dim is no size of its own in internlm2: it is hidden_size / "
           "num_attention_heads"});
  refused("synth llama-3-8b --layers 1 --vocab 64 --out /proc/nowhere", {"cannot write"});
  refused("synth llama-3-8b --layers 1000 --hidden 16777216" + out, {"the disk has"});
  const std::string gpt2 = folder.write("gpt2.json", R"({"model_type": "gpt2"})");
  refused("synth " + gpt2 + out, {"model_type 'gpt2' has no plan"});
  refused("synth " + folder.path().string() + out, {"has no config.json"});
  refused("--tp 2 --layer qkv --layers 2",
          {"--layers is no option of a layer check", "it belongs to 'tpsim synth'"});
  CHECK(names_in(folder.path()) == std::set<std::string>{"gpt2.json"});
  const Ran json = run_line("synth llama-3-8b --json");
  CHECK(json.status == 2);
  CHECK(Json::parse(json.out)["result"] == "error");
}

TEST_CASE("synth command: nothing is left when there is no room", "[command][synth]") {
  // A limit on the size of a file, which the third one exceeds; root has it too.
  const TempDir folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = 58'000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const Ran ran = run_line(
      "synth llama-3-8b --max-shard-size 60KB --layers 6 --hidden 64 --heads 4 "
      "--kv-heads 2 --intermediate 200 --vocab 300 --out " +
      (folder.path() / "a/b").string());
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CAPTURE(ran.err);
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "model-00002-of-"));
  CHECK(has(ran.err, "File too large"));
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("synth command: nothing is left when it is interrupted", "[command][synth]") {
  const TempDir folder;
  const fs::path out = folder.path() / "new";
  for (const int signal : {SIGTERM, SIGINT}) {
    std::vector<std::string> words =
        words_of(std::string(TPSIM_PROGRAM) +
                 " synth llama-3-8b --layers 14 --hidden 1024 --heads 8 --kv-heads 8 --head-dim 32"
                 " --intermediate 512 --vocab 4000 --dtype f32 --max-shard-size 20MB --out " +
                 out.string());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;  // a shell's background job ignores SIGINT
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    sigset_t none;  // and whoever runs the tests may block signals
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    pid_t child = 0;
    REQUIRE(posix_spawn(&child, TPSIM_PROGRAM, nullptr, &attributes, argv.data(), environ) == 0);
    posix_spawnattr_destroy(&attributes);
    // 10 files are to be written: it has not come far when the first of them is seen.
    int state = 0;
    const auto has_begun = [&] {
      std::error_code not_there;
      for (const auto& file : fs::directory_iterator(out, not_there))
        if (file.path().extension() == ".partial") return true;
      return false;
    };
    while (!has_begun()) {
      REQUIRE(waitpid(child, &state, WNOHANG) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, signal);
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFSIGNALED(state));
    CHECK(WTERMSIG(state) == signal);
    CHECK(names_in(folder.path()).empty());
  }
}

}  // namespace tpsim::test::synth_command_tests
