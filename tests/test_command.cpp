// SPDX-License-Identifier: MIT
// The program's text, colours, files and exit statuses, against stored terminal sessions.
// TPSIM_UPDATE_GOLDEN=1 in the environment of this test writes the sessions anew.
#include <algorithm>
#include <cstdlib>
#include <regex>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::command_tests {
namespace {

// Times, versions, source lines and float figures differ between machines and versions.
std::string normalised(std::string text) {
  const std::vector<std::pair<const char*, const char*>> rules{
      {"in [0-9.]+ s\n", "in T s\n"},
      {"tpsim [0-9]+\\.[0-9]+\\.[0-9]+", "tpsim VERSION"},
      {"\\.hpp:[0-9]+", ".hpp:LINE"}};
  for (const auto& [pattern, by] : rules) text = std::regex_replace(text, std::regex(pattern), by);
  // The figure's length decides the blanks before the reading: keep the column.
  const std::regex figure("largest difference [0-9.e-]+ of its bound *");
  std::string same = "largest difference R of its bound";
  same.resize(53, ' ');
  return std::regex_replace(text, figure, same);
}

// The lines that do not fit 80 terminal columns, but for a command line to paste.
std::string too_wide(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
    if (columns > 80 && !line.starts_with("    tpsim ")) out += line + "\n";
  }
  return out;
}

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TPSIM_TEST_DATA).parent_path() / "golden" / (name + ".txt");
}

struct Session {
  const char *name, *line, *locale = "C.UTF-8";
};
const std::vector<Session> sessions{
    {"qkv-tp4", "--tp 4 --layer qkv"},
    {"qkv-tp4-ascii", "--tp 4 --layer qkv --reading static", "C"},
    {"qkv-tp16", "--tp 16 --layer qkv --reading static"},
    {"qkv-tp16-ascii", "--tp 16 --layer qkv --reading static", "C"},
    {"illegal-tp", "--tp 3 --layer qkv"},
    {"illegal-tp-all", "--tp 3 --layer all"},
    {"fault-fused-cut-as-one",
     "--tp 4 --layer qkv --fault fused-cut-as-one --hidden 64 --head-dim 8 --reading static,exact"},
    {"fault-fused-cut-as-one-ascii",
     "--tp 4 --layer qkv --fault fused-cut-as-one --hidden 64 --head-dim 8 --reading static", "C"},
    {"fault-kv-head-modulo",
     "--tp 4 --layer qkv --fault kv-head-modulo --kv-heads 2 --hidden 64 --head-dim 8 "
     "--reading static,exact"},
    {"fault-missing-all-reduce",
     "--tp 4 --layer mlp --fault missing-all-reduce --hidden 64 --intermediate 64 "
     "--reading static,exact"},
    {"fault-verbose",
     "--tp 2 --layer merged --fault gate-up-exchanged --in 4 --parts 4,4 --reading static,exact "
     "--verbose"},
    {"toy-column", "--tp 2 --layer column --toy"},
    {"toy-row", "--tp 2 --layer row --toy"},
    {"toy-merged", "--tp 2 --layer merged --toy"},
    {"toy-qkv", "--tp 2 --layer qkv --toy"},
    {"toy-replicated", "--tp 2 --layer replicated --toy"},
    {"toy-mlp", "--tp 2 --layer mlp --toy"},
    {"plan-llama-3-8b", "plan llama-3-8b"},
    {"plan-illegal", "plan qwen2.5-7b --tp 8,3 --verbose"},
    {"plan-megatron", "plan llama-3-8b --tp 4,16,24 --rules megatron"},
    {"toy-embedding", "--tp 2 --layer embedding --toy"},
    {"toy-lm-head", "--tp 2 --layer lm_head --toy"},
    {"embedding-padded",
     "--tp 4 --layer embedding --vocab 101 --hidden 8 --vocab-cut padded(64) --reading static"},
    {"fault-vocab-border",
     "--tp 4 --layer embedding --vocab 104 --hidden 8 --fault vocab-border-off-by-one --reading "
     "static,exact"},
    {"fault-padded-logits",
     "--tp 4 --layer lm_head --vocab 104 --hidden 8 --fault padded-logits-kept --reading "
     "static,exact"},
    {"illegal-vocab", "--tp 3 --layer lm_head --vocab 101 --vocab-cut padded(64)"},
    {"toy-norm", "--tp 2 --layer norm --toy"},
    {"toy-attention", "--tp 2 --layer attention --toy"},
    {"toy-decoder", "--tp 2 --layer decoder --toy"},
    {"norm-of-heads", "--tp 4 --layer norm --qk-norm full --heads 4 --head-dim 2"},
    {"attention-shared-kv",
     "--tp 4 --layer attention --kv-heads 2 --heads 8 --head-dim 4 --hidden 12 --qk-norm full "
     "--sinks --window 3 --reading static,exact"},
    {"decoder-steps",
     "--tp 2 --layer decoder --kv-heads 2 --heads 4 --head-dim 4 --hidden 12 --intermediate 6 "
     "--norm layer --bias --parallel-residual --chunk 3"},
    {"fault-norm-statistics",
     "--tp 2 --layer attention --kv-heads 2 --heads 4 --head-dim 4 --hidden 12 --fault "
     "norm-statistics-not-shared --reading static,exact"},
    {"fault-window",
     "--tp 2 --layer decoder --kv-heads 2 --heads 4 --head-dim 4 --hidden 12 --intermediate 6 "
     "--fault window-one-longer --reading static,exact"},
    {"illegal-decoder", "--tp 3 --layer decoder --head-dim 5"},
    {"list-layers", "list layers"},
    {"help", "--help"},
    {"no-arguments", ""},
    {"list-faults", "list faults"},
    {"list-models", "list models"},
    {"explain-exact", "explain exact"},
    {"explain-heads", "explain heads"},
    {"explain-state", "explain state"},
    {"explain-partners", "explain partners"},
    {"explain-integer", "explain integer"}};

}  // namespace

TEST_CASE("command: terminal sessions are as stored and fit 80 columns", "[command]") {
  for (const Session& s : sessions) {
    CAPTURE(s.name, s.line);
    const Ran ran = run_line(s.line, {{"LC_ALL", s.locale}});
    const std::string text = ran.out + ran.err;
    CHECK(too_wide(text) == "");
    const std::string session = "$ tpsim " + std::string(s.line) + "\n" + normalised(text) +
                                "$ echo $?\n" + std::to_string(ran.status) + "\n";
    if (std::getenv("TPSIM_UPDATE_GOLDEN") != nullptr)
      std::ofstream(golden(s.name), std::ios::binary) << session;
    CHECK(session == read_text(golden(s.name)));
    if (std::string(s.locale) == "C")
      CHECK(std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; }));
  }
}

TEST_CASE("command: every layer and fault fits 80 columns", "[command]") {
  for (const char* layer :
       {"column", "row", "merged", "qkv", "replicated", "mlp", "norm", "attention", "decoder"})
    for (const char* more :
         {"--tp 1", "--tp 8 --bias", "--tp 16 --verbose", "--tp 4 --fault never-written"}) {
      if (layer == std::string("norm") && has(more, "bias")) continue;
      const std::string line = std::string("--layer ") + layer +
                               " --hidden 4096 --heads 32 --reading static --seed 123456789 " +
                               more;
      CAPTURE(line);
      const Ran ran = run_line(line);
      CHECK(ran.status == (has(line, "fault") ? 1 : 0));
      CHECK(too_wide(ran.out) == "");
    }
  std::string parts = "7,7";
  for (int i = 0; i < 62; ++i) parts += ",7";
  const Ran many = run_tpsim({"--tp", "7", "--layer", "merged", "--in", "3", "--parts", parts});
  CHECK(many.status == 0);
  CHECK(too_wide(many.out) == "");
}

TEST_CASE("command: exit status is 0 for verified and 1 for a fault", "[command]") {
  const std::string small = " --layer row --in 8 --out 4 --tokens 2";
  CHECK(run_line("--tp 2" + small).status == 0);
  CHECK(run_line("--tensor-parallel-size 2" + small).status == 0);
  CHECK(run_line("--tp 2 --fault missing-all-reduce" + small).status == 1);
  CHECK(run_line("--tp 1 --fault missing-all-reduce" + small).status == 0);  // nothing to see
  CHECK(run_line("--tp 2 -q" + small).out.find("row tp 2: ") == 0);
  CHECK(run_line("--tp 2" + small).err.empty());
  const Ran all = run_line("--tp 2 --layer all --toy -q");
  CHECK(all.status == 0);
  CHECK(count_of_text(all.out, " checks passed in ") == 9);
}

TEST_CASE("command: real weights pass at every legal tp", "[command]") {
  const std::string weights = " --weights " + test_data("tiny-qwen3-bias").string() + " --module ";
  for (const char* what :
       {"--layer qkv:model.layers.0.self_attn", "--layer mlp:model.layers.0.mlp",
        "--layer merged:model.layers.0.mlp", "--layer row:model.layers.0.self_attn.o_proj",
        "--layer column:model.layers.0.self_attn.q_proj"})
    for (const char* tp : {"1", "2", "4", "8"}) {
      std::string line = what;
      line = "--tp " + std::string(tp) + " " + line.replace(line.find(':'), 1, weights);
      CAPTURE(line);
      const Ran ran = run_line(line + " --dtype bf16");
      CHECK(ran.status == 0);
      CHECK(has(ran.out, "\nweights "));
    }
}

TEST_CASE("command: colour follows the option and then the environment", "[command]") {
  const std::string line = "--tp 2 --layer row --toy";
  const auto coloured = [&](const std::string& more, const Environment& environment) {
    return has(run_line(line + more, environment).out, "\033[");
  };
  CHECK_FALSE(coloured("", {}));  // no terminal
  CHECK(coloured(" --color always", {{"NO_COLOR", "1"}}));
  CHECK(coloured("", {{"CLICOLOR_FORCE", "1"}}));
  CHECK_FALSE(coloured("", {{"CLICOLOR_FORCE", "0"}}));
  CHECK_FALSE(coloured("", {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}));
  CHECK(coloured("", {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", ""}}));
  CHECK_FALSE(coloured(" --color never", {{"CLICOLOR_FORCE", "1"}}));
  CHECK_FALSE(coloured(" --json", {{"CLICOLOR_FORCE", "1"}}));
}

TEST_CASE("command: GitHub annotations name the failed layer and are escaped", "[command]") {
  const std::string line = "--tp 2 --layer row --in 4 --out 2 --fault doubled-all-reduce";
  const Environment actions{{"GITHUB_ACTIONS", "true"}};
  const Ran ran = run_line(line, actions);
  CHECK(ran.status == 1);
  CHECK(count_of_text(ran.out, "\n::error title=row tp 2 state::Lin(x, weight) columns ") == 1);
  CHECK_FALSE(has(run_line(line).out, "::error"));
  CHECK_FALSE(has(run_line(line + " --json", actions).out, "::error"));
  CHECK_FALSE(has(run_line("--tp 2 --layer row --toy", actions).out, "::error"));
}

TEST_CASE("command: GitHub's page of a run gets a row for each layer of each step", "[command]") {
  const TempDir folder;
  const std::string summary = folder.write("summary.md", "before\n").string();
  const Environment actions{{"GITHUB_ACTIONS", "true"}, {"GITHUB_STEP_SUMMARY", summary}};
  CHECK(run_line("--tp 2 --layer row --toy --json", actions).status == 0);
  CHECK(run_line("--tp 2 --layer row --in 4 --out 2 --fault doubled-all-reduce", actions).status ==
        1);
  CHECK(run_line("check qwen3-0.6b --tp 2 --reading static", actions).status == 0);
  const std::string text = read_text(summary);
  CAPTURE(text);
  CHECK(text.starts_with("before\n| subject | tp | verdict |"));
  CHECK(count_of_text(text, "\n| row | 2 | pass | ") == 1);
  CHECK(count_of_text(text, "\n| row | 2 | **fail** | ") == 1);
  CHECK(has(text, " | state: Lin\\(x, weight\\) columns "));
  CHECK(count_of_text(text, "\n| layers.0 decode | 2 | pass | ") == 1);
  // One that cannot be written is no fault of the layer.
  const Ran none = run_line("--tp 2 --layer row --toy",
                            {{"GITHUB_ACTIONS", "true"}, {"GITHUB_STEP_SUMMARY", "/nowhere/x"}});
  CHECK(none.status == 0);
  CHECK(none.err == "note: cannot add to the step's summary, /nowhere/x\n");
}

}  // namespace tpsim::test::command_tests
