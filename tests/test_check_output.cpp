// SPDX-License-Identifier: MIT
// What `tpsim check` paints and annotates, and the sizes that it refuses.
#include <nlohmann/json.hpp>

#include <tpsim/checkpoint/bound_model.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>

namespace tpsim::test::check_output_tests {
namespace {

using Json = nlohmann::ordered_json;

std::string as_one_line(const std::string& text) {
  std::string out;
  for (const std::string& word : words_of(text)) out += word + " ";
  return out;
}

}  // namespace

TEST_CASE("check: what the machine cannot hold is refused before anything is allocated",
          "[command]") {
  const Environment small{{"TPSIM_MEMORY_MIB", "64"}};
  const auto refused = [&](const std::string& line, const std::vector<std::string>& phrases) {
    const Ran ran = run_line("check " + line, small);
    CAPTURE(line, ran.out, ran.err);
    CHECK(ran.status == 2);
    CHECK(ran.out == "");
    CHECK(ran.most_kib < 300 * 1024);  // a third of it without a sanitizer
    for (const std::string& phrase : phrases) CHECK(has(as_one_line(ran.err), phrase));
  };
  // A file whose one layer has a quarter more weights than fit as 8 bytes each.
  constexpr Index hidden = 512, intermediate = (64 << 20) / 8 / 3 / hidden * 5 / 4;
  Json config = Json::parse(small_config);
  config.update({{"hidden_size", hidden},
                 {"head_dim", 2},
                 {"num_hidden_layers", 1},
                 {"intermediate_size", intermediate / 8 * 8},
                 {"torch_dtype", "bfloat16"}});
  const TempDir folder;
  folder.write("config.json", config.dump());
  std::string header;
  Index end = 0;
  for (const ModelTensor& t : bind_model(config.dump(), "config.json").tensors) {
    const Index begin = end;
    end += 2 * t.shape.size();
    header += (header.empty() ? "{" : ",") +
              entry(t.name, "BF16", t.shape.str(),
                    "[" + std::to_string(begin) + "," + std::to_string(end) + "]");
  }
  const std::string bytes = safetensors_bytes(header + "}");
  std::filesystem::resize_file(folder.write("model.safetensors", bytes),
                               bytes.size() + static_cast<std::size_t>(end));
  const std::string model = folder.path().string();
  refused(model + " --tp 1",
          {"layers.0 at tp 1 needs about 0.07", "GiB for its numbers, and 0.0625 GiB may be used",
           "--reading static,exact"});
  CHECK(run_line("check " + model + " --tp 1 --reading static,exact", small).status == 0);
  CHECK(run_line("check " + model + " --tp 1").status == 0);

  // The same without weights, for the reading at full size.
  constexpr Index widest = 16777216;
  config.update({{"hidden_size", widest},
                 {"num_attention_heads", 512},
                 {"num_key_value_heads", 512},
                 {"head_dim", 32768},
                 {"intermediate_size", widest},
                 {"vocab_size", 512}});
  const TempDir other;
  const std::string shape = other.write("config.json", config.dump()).string();
  refused(shape + " --tp 512 --reading exact --full",
          {"at tp 512 needs about", "GiB for its numbers", "leave --full out"});
}

TEST_CASE("check: a limit of memory that is no number is refused", "[command]") {
  for (const char* limit : {"much", "-1", "0", "1GiB", "nan"}) {
    const Ran ran = run_line("check " + test_data("tiny-llama").string() + " --tp 2",
                             {{"TPSIM_MEMORY_MIB", limit}});
    CHECK(ran.status == 2);
    CHECK(has(ran.err, std::string("TPSIM_MEMORY_MIB is '") + limit + "'"));
  }
}

TEST_CASE("check: colour is that of the layer check", "[command]") {
  const std::string line = "check llama-3-8b --tp 2 --reading static";
  const auto out = [&](const std::string& more, const Environment& environment = {}) {
    return run_line(line + more, environment).out;
  };
  const std::string plain = out(""), green = out(" --color always");
  CHECK_FALSE(has(plain, "\033["));
  CHECK(has(green, "    2  \033[32mpass\033[0m    -       -       "));
  CHECK(has(green, "\033[32mtp 2 passed\033[0m\n"));
  CHECK(has(out(" --verbose", {{"CLICOLOR_FORCE", "1"}}), "    \033[32mpass\033[0m  "));
  CHECK_FALSE(has(out("", {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}), "\033["));
  CHECK_FALSE(has(out(" --json --color always"), "\033["));
  // Nothing but the colour differs.
  std::string without = green;
  for (const char* code : {"\033[32m", "\033[0m"})
    for (std::size_t at; (at = without.find(code)) != std::string::npos;)
      without.erase(at, std::string_view(code).size());
  CHECK(without == plain);
  const Ran red = run_line(line + " --fault missing-all-reduce --color always");
  CHECK(red.status == 1);
  CHECK(has(red.out, "\033[31;1mFAIL\033[0m"));
  CHECK(has(red.out, "\033[31;1mtp 2 failed\033[0m\n"));
}

TEST_CASE("check: GitHub annotations name the stages that failed", "[command]") {
  const std::string line = "check llama-3-8b --tp 16 --reading static --fault kv-head-modulo";
  const Environment actions{{"GITHUB_ACTIONS", "true"}};
  const Ran ran = run_line(line, actions);
  CHECK(ran.status == 1);
  CHECK(has(ran.out, "\n::error title=layers.0 tp 16 order::rank 1 k"));
  CHECK_FALSE(has(ran.out, "title=norm"));
  CHECK_FALSE(has(run_line(line).out, "::error"));
  CHECK_FALSE(has(run_line(line + " --json", actions).out, "::error"));
  CHECK_FALSE(has(run_line("check llama-3-8b --tp 2 --reading static", actions).out, "::error"));
}

}  // namespace tpsim::test::check_output_tests
