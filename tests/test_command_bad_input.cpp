// SPDX-License-Identifier: MIT
// Bad input to the program: one clear message on stderr, exit status 2, quickly and in little
// memory.
#include <algorithm>

#include <tpsim/backend/nccl/nccl_group.hpp>

#include <sim/job.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::command_bad_input_tests {
namespace {

struct Refused {
  std::vector<std::string> words;
  std::vector<std::string> phrases;  // in this order on stderr
  bool hinted = false;               // a hint must follow
};

void check_refused(const Refused& r) {
  std::string line;
  for (const std::string& w : r.words) line += " '" + w + "'";
  CAPTURE(line);
  const Ran ran = run_tpsim(r.words);
  CAPTURE(ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  CHECK(ran.err.starts_with("error: "));
  CHECK(count_of_text(ran.err, "error:") == 1);
  CHECK(count_of_text(ran.err, "\nhint: ") <= 1);
  if (r.hinted) CHECK(has(ran.err, "\nhint: "));
  CHECK_FALSE(has(ran.err, "terminate"));
  CHECK_FALSE(has(ran.err, "std::"));
  std::size_t at = 0;
  for (const std::string& phrase : r.phrases) {
    CAPTURE(phrase);
    const std::size_t found = ran.err.find(phrase, at);
    CHECK(found != std::string::npos);
    if (found != std::string::npos) at = found;
  }
  CHECK(ran.most_kib < 300 * 1024);
}
// `line` has no quotes; phrases follow.
void refused(const std::string& line, const std::vector<std::string>& phrases) {
  check_refused({words_of(line), phrases});
}

}  // namespace

TEST_CASE("command: numbers that are none or out of range are refused", "[command]") {
  for (const char* tp : {"0", "-1", "1000000000", "99999999999999999999", "513"})
    check_refused({{"--tp", tp, "--layer", "qkv"},
                   {"--tp " + std::string(tp) + " is out of range", "hint: --tp can be 1 to 512"}});
  for (const char* tp : {"text", "4.5", "0x4", " 4", "4 ", "+4", "1,2"})
    check_refused({{"--tp", tp, "--layer", "qkv"},
                   {"'" + std::string(tp) + "' is not a whole number", "hint: --tp can be 1"}});
  check_refused({{"--tp", "", "--layer", "qkv"}, {"option '--tp' is empty", "hint: --tp N"}});
  refused("--tp= --layer qkv", {"option '--tp' needs a value", "hint: --tp N"});
  refused("--layer qkv --tp", {"option '--tp' needs a value"});
  for (const char* option :
       {"--hidden", "--heads", "--kv-heads", "--head-dim", "--v-head-dim", "--tokens"})
    for (const char* value : {"0", "-4", "99999999999", "99999999999999999999", "x"})
      check_refused({{"--tp", "2", "--layer", "qkv", option, value}, {option, "hint: "}});
  for (const char* option : {"--in", "--out", "--intermediate"})
    check_refused({{"--tp", "2", "--layer", "column", option, "0"}, {option, "out of range"}});
  for (const char* parts : {"4,,4", "4,", ",4", "3,0", "4;4"})
    check_refused({{"--tp", "1", "--layer", "merged", "--parts", parts}, {"--parts", "hint: "}});
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  refused("--tp 1 --layer merged --parts " + many, {"more than 64 parts"});
  refused("--tp 2 --layer qkv --seed -1", {"--seed -1 is out of range"});
}

TEST_CASE("command: sizes whose product is too large are refused", "[command]") {
  refused("--tp 2 --layer qkv --heads 16777216 --head-dim 16777216",
          {"q_proj.weight [281474976710656, 4096] is too large", "hint: "});
  refused("--tp 2 --layer mlp --hidden 16777216 --intermediate 16777216", {"is too large"});
  refused("--tp 2 --layer merged --in 16777216 --parts 16777216,16777216", {"is too large"});
  refused("--tp 2 --layer row --in 16777216 --out 16777216", {"is too large"});
  refused("--tp 4 --layer column --tokens 16777216", {"GiB for its numbers", "fewer tokens"});
  refused("--tp 512 --layer row --reading exact --tokens 16777216", {"GiB for its numbers"});
}

TEST_CASE("command: unknown names come with a near one", "[command]") {
  refused("--tp 4 --layer qvk", {"unknown layer 'qvk'", "did you mean 'qkv'?", "list layers"});
  refused("--tp 4 --layer xyzzy", {"unknown layer 'xyzzy'", "'tpsim list layers' shows all"});
  refused("--tp 4 --layer qkv --fault kv-head-modul", {"did you mean 'kv-head-modulo'?"});
  refused("--tp 4 --layer all --fault xyzzy", {"unknown fault 'xyzzy'"});
  refused("--tp 4 --layer qkv --fault gate-up-exchanged",
          {"does not apply to layer qkv", "hint: it applies to merged or mlp"});
  refused("--tp 4 --layer qkv --model llama-3-8", {"did you mean 'llama-3-8b'?"});
  refused("--tp 4 --layer qkv --reading statc", {"did you mean 'static'?"});
  refused("--tp 4 --layer qkv --reading static,", {"unknown reading ''"});
  refused("--tp 4 --layer qkv --dtype bf61", {"did you mean 'bf16'?"});
  refused("--tp 4 --layer qkv --dtype f64",
          {"does not run in f64", "f32, bf16 and f16; its reference is"});
  for (const char* asked : {"--tp 4 --layer qkv", "check llama-3-8b --tp 2", "run . --tp 2"})
    if (!nccl::Group::is_built())
      refused(std::string(asked) + " --comm nccl",
              {"built without NCCL", "--comm virtual", "nvcc"});
    else if (cuda::Device::count() == 0)
      refused(std::string(asked) + " --comm nccl", {"no CUDA device: ", "--comm virtual"});
  refused("--tp 4 --layer qkv --comm mpy", {"unknown communicator 'mpy'", "did you mean 'mpi'?"});
  if (!cli::has_mpi())
    for (const char* asked : {"--tp 4 --layer qkv", "check llama-3-8b --tp 2", "run . --tp 2"})
      refused(std::string(asked) + " --comm mpi",
              {"built without MPI", "--comm virtual", "libopenmpi-dev"});
  refused("--tp 4 --layer qkv --backend gpu", {"unknown backend 'gpu'", "eigen and cuda"});
  refused("--tp 4 --layer qkv --color no", {"unknown color 'no'"});
  refused("--help=shap", {"unknown option group", "did you mean 'shape'?"});
  refused("list layrs", {"no list 'layrs'", "did you mean 'layers'?"});
  refused("explain head", {"no check 'head'", "did you mean 'heads'?"});
}

TEST_CASE("command: options are whole, given once and of that layer", "[command]") {
  refused("--tp 4 --lay qkv", {"unknown option '--lay'", "did you mean '--layer'?"});
  refused("--tpp 4 --layer qkv", {"unknown option '--tpp'", "did you mean '--tp'?"});
  refused("-tp 4 --layer qkv", {"unknown option '-tp'", "did you mean '--tp'?"});
  refused("--tp 4 --layer qkv -x", {"unknown option '-x'"});
  refused("--tp 4 --tp 8 --layer qkv", {"'--tp' is given more than once"});
  refused("--tp 4 --tensor-parallel-size 4 --layer qkv", {"'--tp' is given more than once"});
  refused("--tp 4 --layer qkv --toy --toy", {"'--toy' is given more than once"});
  refused("--tp 4 --layer qkv --toy=1", {"'--toy' takes no value"});
  refused("--tp 4", {"--layer is missing", "hint: "});
  refused("--layer qkv", {"--tp is missing", "hint: "});
  for (const char* line :
       {"word --tp 4 --layer qkv", "--tp 4 word --layer qkv", "--tp 4 --layer qkv word",
        "--tp 4 --layer qkv --toy word", "--tp 4 --layer=qkv word", "--tp 4 --layer qkv -- word"})
    refused(line, {"'word' is no option and no command", "hint: "});
  refused("--tp 4 --toy qkv", {"'qkv' is no option"});
  refused("lst layers", {"did you mean 'tpsim list'?"});
  refused("list layers models", {"'models' is one word too many"});
  refused("list layers --tp 4", {"--tp is no option of 'list'"});
  refused("--tp 2 --layer row --gather-output",
          {"no option of layer row", "column, merged or lm_head"});
  refused("--tp 2 --layer mlp --skip-bias-add", {"--skip-bias-add is no option of layer mlp"});
  refused("--tp 2 --layer column --no-reduce-results", {"no option of layer column", "row"});
  refused("--tp 2 --layer qkv --parts 3,4", {"--parts is no option of layer qkv", "merged"});
  refused("--tp 2 --layer qkv --toy --heads 4", {"--toy has its own numbers, without --heads"});
  refused("--tp 2 --layer qkv --toy --weights x --module y",
          {"--toy has its own numbers, without --weights"});
  refused("--tp 2 --layer row --bias --no-reduce-results", {"state", "bias cannot be added"});
}

TEST_CASE("command: an illegal shape is refused with every reason", "[command]") {
  refused("--tp 3 --layer qkv", {"tp 3 cannot split this layer", "divide  32 query heads",
                                 "divide  8 kv heads", "hint: tp can be 1, 2, 4, 8, 16 or 32"});
  refused("--tp 3 --layer qkv --fault k-v-exchanged", {"tp 3 cannot split", "hint: tp can be"});
  refused("--tp 3 --layer all", {"column: 14336 output rows", "row: 4096", "merged: ", "qkv: ",
                                 "mlp: ", "hint: tp can be 1, 2, 4, 8, 16 or 32"});
  refused("--tp 2 --layer all --heads 3 --kv-heads 3 --hidden 6", {"qkv: 3 query heads"});
}

TEST_CASE("command: a layout expression is refused with a pointer", "[command]") {
  const auto disk = [](const char* text, const std::vector<std::string>& phrases) {
    check_refused({{"--tp", "2", "--layer", "qkv", "--disk", text}, phrases});
  };
  disk("q:kv*g*d + k:kv*d + v:kv*",
       {"    q:kv*g*d + k:kv*d + v:kv*\n" + std::string(29, ' ') + "^"});
  disk("q:kv*g*d + k:kv*d", {"part v is missing", "hint: its parts are"});
  disk("q:kv*g*d + k:kv*d + v:kv*x", {"^", "no axis 'x'"});
  disk("q:kv*g*d + k:kv*d + v:kv*g*d", {"part v has 4096 rows, the layer 1024"});
  disk("", {"option '--disk' is empty"});
  check_refused({{"--tp", "2", "--layer", "all", "--disk", "kv*d"}, {"one layer, not all"}});
  check_refused({{"--tp", "2", "--layer", "qkv", "--disk", std::string(100000, '(')}, {"error"}});
}

TEST_CASE("command: checkpoints that cannot be used are refused with a hint", "[command]") {
  const std::string tiny = test_data("tiny-qwen3").string();
  const TempDir empty;
  const auto weights = [](const std::string& layer, const std::string& folder,
                          const std::string& module, const std::vector<std::string>& phrases) {
    check_refused(
        {{"--tp", "2", "--layer", layer, "--weights", folder, "--module", module}, phrases, true});
  };
  const std::string attention = "model.layers.0.self_attn";
  weights("qkv", "/nonexistent", attention, {"/nonexistent", "no such directory"});
  weights("qkv", empty.path().string(), attention, {"has no config.json"});
  weights("qkv", "/dev/null", attention, {"not a directory"});
  weights("qkv", tiny, "model.layers.0.self_atn", {"no module", "did you mean '" + attention});
  weights("qkv", tiny, "xyzzy", {"no module 'xyzzy'"});
  weights("qkv", tiny, "model.layers.0.mlp", {"is not a qkv layer", "use --layer mlp or merged"});
  weights("row", tiny, attention, {"is not a row layer", "use --layer qkv"});
  weights("row", tiny, "model.layers.0.input_layernorm", {"linear weight is"});
  weights("all", tiny, attention, {"one layer, not all"});
  refused("--tp 2 --layer qkv --weights " + tiny, {"--weights needs --module", "hint: "});
  refused("--tp 2 --layer qkv --module x", {"--module needs --weights", "hint: "});
  refused("--tp 3 --layer qkv --weights " + tiny + " --module " + attention,
          {"8 query heads over 3", "hint: tp can be 1, 2, 4 or 8"});
  refused("--tp 2 --layer qkv --heads 4 --weights " + tiny + " --module " + attention,
          {"sizes come from the checkpoint, without --heads"});
}

TEST_CASE("command: output that cannot be written is refused before any work", "[command]") {
  const TempDir folder;
  const std::string row = "--tp 2 --layer row --toy ";
  refused(row + "--html /nonexistent/page.html", {"cannot write /nonexistent/page.html", "hint"});
  refused(row + "--junit /nonexistent/report.xml", {"cannot write /nonexistent/report.xml"});
  refused(row + "--html " + folder.path().string(), {"it is a folder"});
  refused(row + "--html /dev/null", {"no ordinary file"});
  const std::string page = (folder.path() / "page.html").string();
  refused(row + "--html " + page + " --junit /nonexistent/report.xml", {"cannot write"});
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace tpsim::test::command_bad_input_tests
