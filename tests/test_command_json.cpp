// SPDX-License-Identifier: MIT
// The program's JSON: every documented field with its type and order, and nothing else on stdout.
#include <nlohmann/json.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::command_json_tests {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> keys(const Json& j) {
  std::vector<std::string> out;
  for (const auto& [key, value] : j.items()) out.push_back(key);
  return out;
}
using Keys = std::vector<std::string>;

// One object, a newline, and nothing else on either stream.
Json only_object(const Ran& ran) {
  CHECK(ran.err == "");
  CHECK(ran.out.ends_with("}\n"));
  const Json j = Json::parse(ran.out);
  CHECK(j.is_object());
  CHECK(j.at("schema") == "tpsim.report/1");
  CHECK(keys(j)[0] == "schema");
  CHECK(keys(j)[1] == "version");
  return j;
}
Json only_object(const std::string& line) { return only_object(run_line(line)); }

void check_tensors(const Json& tensors, std::size_t ranks) {
  REQUIRE(!tensors.empty());
  for (const Json& t : tensors) {
    CHECK(keys(t) == Keys{"name", "tp_dim", "full_shape", "shards"});
    CHECK((t["tp_dim"].is_null() || t["tp_dim"] == 0 || t["tp_dim"] == 1));
    REQUIRE(t["shards"].size() == ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      const Json& shard = t["shards"][r];
      CHECK(keys(shard) == Keys{"rank", "shape", "pieces"});
      CHECK(shard["rank"] == r);
      std::int64_t next = 0;  // pieces are half-open, in order and without a gap
      for (const Json& p : shard["pieces"]) {
        CHECK(p["param"][0] == next);
        next = p["param"][1];
        const std::int64_t begin = p["range"][0], end = p["range"][1];
        CHECK(end > begin);
        if (!p.contains("stride")) CHECK(end - begin == next - p["param"][0].get<std::int64_t>());
        CHECK(p["source"].is_string());
        CHECK(p["label"].is_string());
      }
      CHECK(next == shard["shape"][t["tp_dim"] == 1 ? 1 : 0]);
    }
  }
}

void check_checks(const Json& checks) {
  REQUIRE(!checks.empty());
  for (const Json& c : checks) {
    CAPTURE(c.dump());
    const Keys k = keys(c);
    CHECK(Keys(k.begin(), k.begin() + 7) ==
          Keys{"id", "reading", "result", "compared", "subject", "message", "findings"});
    CHECK(c["compared"].is_number_integer());
    CHECK((c["reading"] == "static" || c["reading"] == "exact" || c["reading"] == "numeric"));
    CHECK((c["result"] == "pass" || c["result"] == "fail" || c["result"] == "skip"));
    CHECK((c["result"] == "skip") == (c["compared"] == 0 && c["findings"].empty()));
    CHECK((c["result"] == "fail") == !c["findings"].empty());
    for (const Json& f : c["findings"])
      CHECK(keys(f) == Keys{"rank", "tensor", "message", "cause", "repair"});
  }
}

}  // namespace

TEST_CASE("command json: a layer check has the documented fields in order", "[command]") {
  const std::string small = " --json --tokens 2 --hidden 8 --heads 4 --kv-heads 2 --head-dim 2";
  for (const char* layer :
       {"column", "row", "merged", "qkv", "replicated", "mlp", "norm", "attention", "decoder"})
    for (const char* more : {"", " --fault never-written"}) {
      const std::string line =
          std::string("--tp 2 --intermediate 8 --layer ") + layer + small + more;
      CAPTURE(line);
      const Ran ran = run_line(line);
      const Json j = only_object(ran);
      const bool fails = more[0] != '\0';
      Keys wanted{"schema",      "version", "command", "result", "request",        "tensors",
                  "collectives", "checks",  "cost",    "notes",  "counterexample", "elapsed_s"};
      if (!fails) wanted.erase(wanted.end() - 2);
      CHECK(keys(j) == wanted);
      CHECK(j["command"] == "layer");
      CHECK(j["result"] == (fails ? "fail" : "pass"));
      CHECK(ran.status == (fails ? 1 : 0));
      CHECK(j["elapsed_s"].is_number());
      CHECK(j["notes"] == Json::array());
      CHECK(j["request"]["tp"] == 2);
      CHECK(j["request"]["layer"] == layer);
      for (const char* field : {"tokens", "bias", "disk", "weights", "module", "reading", "dtype",
                                "all_reduce", "seed", "backend", "comm", "model", "fault", "toy"})
        CHECK(j["request"].contains(field));
      if (!fails) check_tensors(j["tensors"], 2);
      check_checks(j["checks"]);
      for (const Json& c : j["collectives"]) {
        CHECK(keys(c) == Keys{"op", "group", "shape", "dtype", "bytes", "at"});
        CHECK(c["bytes"].is_number_integer());
      }
      for (const char* cost : {"weight_bytes_per_rank", "kv_bytes_per_token_per_rank",
                               "flop_per_rank", "wire_bytes_per_rank"}) {
        REQUIRE(j["cost"][cost].size() == 2);
        CHECK(j["cost"][cost][0].is_number_integer());
      }
    }
}

TEST_CASE("command json: the order of sums is echoed and has an effect", "[command]") {
  const std::string line = "--tp 8 --layer row --in 64 --out 8 --dtype bf16 --reading numeric";
  std::vector<double> ratios;
  for (const char* order : {"", "rank", "ring", "f32"}) {
    const std::string option = order[0] == '\0' ? "" : std::string(" --all-reduce ") + order;
    const Json j = only_object(line + option + " --json");
    CHECK(j["result"] == "pass");
    CHECK(j["request"]["all_reduce"] == (order[0] == '\0' ? "rank" : order));
    for (const Json& c : j["checks"]) {
      if (c["id"] != "rounding") continue;
      ratios.push_back(c["largest_ratio"]);
      const Json& at = c["largest_place"];
      CHECK(keys(at) == Keys{"rank", "tensor", "head", "token", "column"});
      CHECK(at["tensor"] == "output");
      CHECK(at["head"].is_null());
      CHECK(c["largest_at"] == "rank " + at["rank"].dump() + " column " + at["column"].dump() +
                                   ", token " + at["token"].dump());
    }
  }
  REQUIRE(ratios.size() == 4);
  CHECK(ratios[0] == ratios[1]);
  CHECK(ratios[1] != ratios[2]);
  CHECK(ratios[1] != ratios[3]);
  CHECK(has(run_line(line + " --all-reduce ring --verbose").out, "all-reduce ring"));
  const Ran refused = run_line(line + " --all-reduce rin");
  CHECK(refused.status == 2);
  CHECK(has(refused.err, "did you mean 'ring'? orders are rank, ring and f32"));
}

TEST_CASE("command json: the figures of llama-3-8b qkv at tp 4", "[command]") {
  const Json j = only_object("--tp 4 --layer qkv --reading static --json");
  const Json& weight = j["tensors"][0];
  CHECK(weight["name"] == "qkv_proj.weight");
  CHECK(weight["tp_dim"] == 0);
  CHECK(weight["full_shape"] == Json{6144, 4096});
  CHECK(weight["shards"][3]["shape"] == Json{1536, 4096});
  const Json& piece = weight["shards"][1]["pieces"][1];
  CHECK(piece["param"] == Json{1024, 1280});
  CHECK(piece["source"] == "k_proj.weight");
  CHECK(piece["range"] == Json{256, 512});
  CHECK(piece["label"] == "k heads 2-3");
  CHECK(j["cost"]["weight_bytes_per_rank"][0] == 1536 * 4096 * 4);
  CHECK(j["cost"]["kv_bytes_per_token_per_rank"][0] == 512 * 4);
  check_tensors(j["tensors"], 4);
}

TEST_CASE("command json: equal requests differ in elapsed_s alone", "[command]") {
  for (const char* line : {"--tp 2 --layer all --toy --json",
                           "--tp 4 --layer qkv --fault kv-head-modulo --kv-heads 2 --heads 4 "
                           "--hidden 8 --head-dim 2 --json"}) {
    Json first = only_object(line), second = only_object(line);
    CHECK(first.erase("elapsed_s") == 1);
    CHECK(second.erase("elapsed_s") == 1);
    CHECK(first == second);
  }
}

TEST_CASE("command json: all layers come with their own results", "[command]") {
  const Json j = only_object("--tp 2 --layer all --toy --json");
  CHECK(keys(j) ==
        Keys{"schema", "version", "command", "result", "request", "layers", "elapsed_s"});
  REQUIRE(j["layers"].size() == 9);
  for (const Json& layer : j["layers"]) {
    CHECK(keys(layer) ==
          Keys{"layer", "result", "request", "tensors", "collectives", "checks", "cost", "notes"});
    check_tensors(layer["tensors"], 2);
    check_checks(layer["checks"]);
  }
}

TEST_CASE("command json: every fault names its effect and a command that fails", "[command]") {
  const Json list = only_object("list faults --json");
  REQUIRE(list["faults"].size() > 5);
  for (const Json& fault : list["faults"]) {
    CHECK(fault["name"].is_string());
    CHECK(fault["summary"].is_string());
    CHECK(fault["layer"] == fault["layers"][0]);
    CHECK(!fault["caught_by"].empty());
    for (const Json& layer : fault["layers"]) {
      const std::string line = "--tp 4 --kv-heads 2 --heads 8 --head-dim 2 --hidden 8 " +
                               std::string("--intermediate 8 --tokens 2 --json --layer ") +
                               layer.get<std::string>() + " --fault " +
                               fault["name"].get<std::string>();
      CAPTURE(line);
      const Ran ran = run_line(line);
      CHECK(ran.status == 1);
      const Json j = only_object(ran);
      Keys readings;  // the readings that failed
      for (const Json& c : j["checks"])
        if (c["result"] == "fail" && (readings.empty() || c["reading"] != readings.back()))
          readings.push_back(c["reading"]);
      if (layer == fault["layer"]) CHECK(Json(readings) == fault["caught_by"]);
      const Keys command = j["counterexample"]["command"];
      CHECK(keys(j["counterexample"]) == Keys{"request", "command"});
      CHECK(command[0] == "tpsim");
      CHECK(run_tpsim({command.begin() + 1, command.end()}).status == 1);
    }
  }
}

TEST_CASE("command json: an error is one object too", "[command]") {
  for (const char* line : {"--json", "--json --tp 0 --layer qkv", "--tp 3 --layer qkv --json",
                           "--json --tpp 4", "word --json", "list nothing --json", "explain --json",
                           "--json --tp 2 --layer qkv --weights /nonexistent --module x",
                           "--json --tp 2 --layer row --toy --html /nonexistent/page.html",
                           "--json --tp 2 --layer row --toy --junit /nonexistent/report.xml"}) {
    CAPTURE(line);
    const Ran ran = run_line(line);
    CHECK(ran.status == 2);
    const Json j = only_object(ran);
    CHECK(j["result"] == "error");
    CHECK(!j["message"].get<std::string>().empty());
    CHECK(!j["hint"].get<std::string>().empty());
  }
  const Json j = only_object("--tp 3 --layer qkv --json");
  CHECK(j["broken"].size() == 2);
  CHECK(j["broken"][0]["id"] == "divide");
  for (const char* line : {"--version --json", "--help --json", "list layers --json",
                           "explain heads --json", "--json explain heads"})
    CHECK(only_object(line)["result"] == "pass");
}

}  // namespace tpsim::test::command_json_tests
