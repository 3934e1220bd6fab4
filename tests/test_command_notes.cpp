// SPDX-License-Identifier: MIT
// What the program says besides its checks: what was skipped or changed, the cause, the progress.
#include <cstdio>
#include <functional>

#include <nlohmann/json.hpp>

#include <sim/progress.hpp>
#include <sim/report.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>
#include <tpsim/verify/fault_list.hpp>
#include <tpsim/verify/fault_spec.hpp>

namespace tpsim::test::command_notes_tests {
namespace {

std::string last_line(const std::string& text) {
  const std::string all = text.substr(0, text.find_last_not_of('\n') + 1);
  return all.substr(all.rfind('\n') + 1);
}

// What Progress writes while `milliseconds` go by.
std::string progress_of(bool shown, int milliseconds) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    const cli::Progress progress(file, shown, "verifying qkv tp 4", std::chrono::milliseconds(100));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

// Each fault of these layers as one would first try it, on the sizes of llama-3-8b.
void check_default_faults(const std::function<bool(const std::string&)>& asked) {
  for (const Fault& fault : faults())
    for (const std::string& layer : fault.layers) {
      if (!asked(layer)) continue;
      const std::string line = "--tp 4 --layer " + layer + " --fault " + fault.name;
      CAPTURE(line);
      // Full sizes take a second or more in the other readings, which are for what it cannot see.
      Ran ran = run_line(line + " --reading static");
      if (ran.status == 0) ran = run_line(line + " --tokens 1");
      CHECK(ran.status == 1);
      CHECK(has(ran.out, "\ncause: "));
    }
}

}  // namespace

TEST_CASE("command notes: no reading of a small layer is skipped", "[command]") {
  const std::string mlp = "--tp 2 --layer mlp --hidden 4 --intermediate 4 --tokens 2";
  CHECK(has(last_line(run_line(mlp).out), " checks passed in "));
  CHECK(has(run_line(mlp + " -q").out, " checks passed in "));
  CHECK(has(run_line(mlp + " --fault missing-all-reduce -q").out, " checks failed in "));
}

TEST_CASE("command notes: readings of very large weights are skipped and counted", "[command]") {
  // 16384 * 32768 elements are 2^29, the most that is run without being asked for.
  const std::string line = "--tp 8 --layer column --tokens 1 --in 16384 --out ";
  const Ran ran = run_line(line + "32776");
  CHECK(ran.status == 0);
  CHECK(count_of_text(ran.out, "over 2^29 weight elements") == 2);
  CHECK(has(ran.out, "--reading static,exact,numeric"));
  CHECK(has(last_line(ran.out), " checks passed, 2 skipped in "));
  CHECK(has(run_line(line + "32776 -q").out, " checks passed, 2 skipped in "));
  const Ran asked = run_line(line + "32776 --reading static");
  CHECK_FALSE(has(asked.out, "2^29"));
}

TEST_CASE("command notes: every fault fails on the default model of one linear", "[command]") {
  check_default_faults([](const std::string& layer) {
    return layer != "merged" && layer != "mlp" && !is_decoder_layer(layer);
  });
}
TEST_CASE("command notes: every fault fails on the default model of an MLP", "[command]") {
  check_default_faults(
      [](const std::string& layer) { return layer == "merged" || layer == "mlp"; });
}

TEST_CASE("command notes: every fault fails on the default model of a decoder", "[command]") {
  check_default_faults(is_decoder_layer);
}

TEST_CASE("command notes: what a decoder's fault needs is told and echoed", "[command]") {
  const std::string line =
      "--tp 2 --hidden 8 --heads 4 --kv-heads 2 --head-dim 4 --tokens 4 --layer attention --fault ";
  const auto check = [&](const std::string& fault, const std::vector<std::string>& notes,
                         const std::string& field, const nlohmann::json& value) {
    CAPTURE(fault);
    const auto j = nlohmann::json::parse(run_line(line + fault + " --json").out);
    CHECK(j["result"] == "fail");
    CHECK(j["notes"] == nlohmann::json(notes));
    CHECK(j["request"][field] == value);
    CHECK(j["counterexample"]["request"][field] == value);
  };
  check("slopes-of-local-heads", {"slopes-of-local-heads needs alibi; checked with that"}, "alibi",
        true);
  check("sinks-of-first-heads", {"sinks-of-first-heads needs sinks; checked with that"}, "sinks",
        true);
  check("window-one-longer",
        {"window-one-longer needs a window of 2; checked with that",
         "window-one-longer needs 8 tokens; checked with that"},
        "window", 2);
  check("positions-restart",
        {"positions-restart needs steps of 3 tokens; checked with that",
         "positions-restart needs 8 tokens; checked with that"},
        "chunk", 3);
  check("head-norm-shared",
        {"head-norm-shared needs a norm of each q and k head; checked with that"}, "qk_norm",
        "head");
  check("norm-statistics-not-shared",
        {"norm-statistics-not-shared needs a norm of all heads together; checked with that"},
        "qk_norm", "full");
  CHECK_FALSE(has(run_line("--tp 2 --hidden 8 --heads 4 --kv-heads 2 --head-dim 4 --layer "
                           "attention --fault window-one-longer --window 2 --tokens 8")
                      .out,
                  "note: "));
}

TEST_CASE("command notes: a shape that was changed for a fault is told and echoed", "[command]") {
  const std::string line =
      "--tp 4 --layer qkv --fault kv-head-modulo --hidden 8 --heads 8 --head-dim 2 --tokens 1";
  const Ran text = run_line(line + " --kv-heads 8");
  CHECK(text.status == 1);
  CHECK(has(text.out, "note: kv-head-modulo shows with shared kv heads alone; checked with 2 kv "));
  CHECK(has(text.out, "--kv-heads 2 "));
  const auto json = nlohmann::json::parse(run_line(line + " --kv-heads 8 --json").out);
  CHECK(json["request"]["kv_heads"] == 2);
  CHECK(json["notes"].size() == 1);
  CHECK_FALSE(has(run_line(line + " --kv-heads 2").out, "note: "));
  const auto disk = nlohmann::json::parse(
      run_line("--tp 2 --layer merged --in 2 --parts 2,4 --json --fault fused-cut-as-one").out);
  CHECK(disk["request"]["disk"] == "gate:n0 + up:n1");
  CHECK(disk["notes"].size() == 1);
}

TEST_CASE("command notes: only a shape that cannot show its fault is changed", "[command]") {
  LayerSpec s;
  s.qkv = {8, 2, 8, 8, 0};
  const auto kv_heads = [&](int tp, Index heads, const char* fault) {
    LayerSpec asked = s;
    asked.tp = tp, asked.qkv.kv_heads = heads;
    return spec_for_fault(asked, fault).qkv.kv_heads;
  };
  CHECK(kv_heads(4, 8, "kv-head-modulo") == 2);
  CHECK(kv_heads(4, 4, "kv-head-modulo") == 2);
  CHECK(kv_heads(8, 8, "kv-head-modulo") == 4);
  CHECK(kv_heads(4, 2, "kv-head-modulo") == 2);
  CHECK(kv_heads(8, 2, "kv-head-modulo") == 2);
  CHECK(kv_heads(2, 8, "kv-head-modulo") == 8);  // two ranks share no two heads in a wrong order
  CHECK(kv_heads(4, 3, "kv-head-modulo") == 3);  // illegal, and stays so
  CHECK(kv_heads(4, 8, "k-v-exchanged") == 8);
  s.disk = "h*(q:d + k:d + v:m)";  // for as many kv heads as query heads
  CHECK(kv_heads(4, 8, "kv-head-modulo") == 8);
  s.disk.clear();
  s.values["q_proj.weight"] = nullptr;  // numbers of a checkpoint have their own shape
  CHECK(kv_heads(4, 8, "kv-head-modulo") == 8);
}

TEST_CASE("command notes: a fault without effect is told in the last line", "[command]") {
  const std::string line = "--tp 1 --layer row --in 4 --out 2 --fault missing-all-reduce";
  const std::string told = "the fault missing-all-reduce changes nothing at this shape";
  const Ran ran = run_line(line);
  CHECK(ran.status == 0);
  CHECK(last_line(ran.out) == told);
  CHECK(has(last_line(run_line(line + " -q").out), " s; " + told));
  CHECK(nlohmann::json::parse(run_line(line + " --json").out)["notes"][0] == told);
  // One reading alone cannot say so much.
  CHECK(last_line(run_line(line + " --reading static").out) ==
        "the readings that ran do not see the fault missing-all-reduce");
  CHECK_FALSE(has(run_line("--tp 1 --layer row --in 4 --out 2").out, "the fault "));
}

TEST_CASE("command notes: a module checked as the other kind of linear is noted", "[command]") {
  const auto notes = [](const std::string& layer, const std::string& module) {
    const Ran ran =
        run_line("--tp 2 --json --layer " + layer + " --weights " +
                 test_data("tiny-qwen3").string() + " --module model.layers.0." + module);
    CHECK(ran.status == 0);
    return nlohmann::json::parse(ran.out)["notes"].dump();
  };
  CHECK(notes("column", "self_attn.o_proj") ==
        "[\"o_proj is row parallel in engines; checked as column\"]");
  CHECK(notes("column", "mlp.down_proj") ==
        "[\"down_proj is row parallel in engines; checked as column\"]");
  CHECK(notes("row", "self_attn.q_proj") ==
        "[\"q_proj is column parallel in engines; checked as row\"]");
  CHECK(notes("row", "self_attn.o_proj") == "[]");
  CHECK(notes("column", "mlp.up_proj") == "[]");
  CHECK(notes("replicated", "self_attn.o_proj") == "[]");
  CHECK(notes("qkv", "self_attn") == "[]");
}

TEST_CASE("command notes: the cause is that of the check nearest to the fault", "[command]") {
  cli::LayerResult result;
  result.report.subject = "qkv";
  const auto add = [&](const char* id, const char* cause) {
    CheckResult check{.id = id, .result = Outcome::fail};
    check.findings.push_back({id, 0, "", "seen", cause, ""});
    result.report.checks.push_back(check);
  };
  const auto cause = [&] {
    const std::string text = cli::text_report({}, result, false, false);
    const std::size_t at = text.find("\ncause: ") + 8;
    return text.substr(at, text.find('\n', at) - at);
  };
  add("exact", "arithmetic");
  CHECK(cause() == "arithmetic");
  add("cover", "counts");
  CHECK(cause() == "counts");
  add("state", "sums");
  CHECK(cause() == "sums");
  add("heads", "");  // says nothing
  CHECK(cause() == "sums");
  add("order", "places");
  CHECK(cause() == "places");
  add("order", "later");
  CHECK(cause() == "places");
}

TEST_CASE("command notes: progress is written after a while and erased", "[command]") {
  const std::string text = progress_of(true, 350);
  CHECK(text.starts_with("\rverifying qkv tp 4 ... 0 s\rverifying qkv tp 4 ... 0 s"));
  const std::string line = "verifying qkv tp 4 ... 0 s";
  CHECK(text.ends_with("\r" + std::string(line.size(), ' ') + "\r"));
  CHECK(progress_of(true, 0) == "");
  CHECK(progress_of(false, 250) == "");
}

}  // namespace tpsim::test::command_notes_tests
