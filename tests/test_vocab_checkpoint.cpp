// SPDX-License-Identifier: MIT
// The embedding and the head with a checkpoint's numbers: the tokens that transformers would
// choose, and the head's tensor of a tied model, there or not.
#include <algorithm>
#include <fstream>
#include <iterator>

#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/check_names.hpp>
#include <tpsim/checkpoint/checkpoint.hpp>

#include <sim/request.hpp>
#include <sim/specs.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>
#include <tests/support/verify_fixture.hpp>

namespace vocab_checkpoint_tests {

using namespace tpsim;
using namespace tpsim::testing;
using tpsim::test::test_data;

namespace {

LayerSpec spec_of(const std::string& layer, const std::string& checkpoint,
                  const std::string& module) {
  LayerSpec s;
  s.layer = layer;
  s.tokens = 7;
  cli::fill_from_checkpoint(s, test_data(checkpoint), module);
  return s;
}
SafetensorsEntry entry_of(const std::string& name, std::vector<Index> dims) {
  SafetensorsEntry e;
  e.name = name;
  e.dtype = "F32";
  e.dims = std::move(dims);
  return e;
}
BoundModel model_of(const std::string& checkpoint) {
  std::ifstream in(test_data(checkpoint) / "config.json");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return bind_model(text, checkpoint);
}

}  // namespace

TEST_CASE("checkpoint: at every tp the head chooses the tokens that transformers' logits choose") {
  using B = Subject::Numeric;
  for (const auto& [checkpoint, module] : std::vector<std::pair<const char*, const char*>>{
           {"tiny-llama", "lm_head"}, {"tiny-qwen3-tied", "model.embed_tokens"}}) {
    const SafetensorsFile file(test_data(checkpoint) / "golden.safetensors");
    const CheckpointTensor input = file.tensor("final_norm"), logits = file.tensor("logits_f64");
    LayerSpec s = spec_of("lm_head", checkpoint, module);
    s.tokens = input.shape.rows();
    s.argmax = true;
    REQUIRE(logits.shape == Shape(s.tokens, s.vocab));
    std::vector<Index> wanted;
    for (Index t = 0; t < s.tokens; ++t) {
      std::vector<double> row(static_cast<std::size_t>(s.vocab));
      logits.values->read(t, 0, std::span<double>(row));
      wanted.push_back(std::max_element(row.begin(), row.end()) - row.begin());
    }
    CHECK(std::set<Index>(wanted.begin(), wanted.end()).size() > 1);
    Index looked = 0;
    for (const char* cut : {"padded(64)", "padded(64) last", "padded(16*tp)", "padded(16*tp) last"})
      for (s.tp = 1, s.vocab_cut = cut; s.tp <= 8; ++s.tp) {
        if (!violations(s).empty()) continue;
        INFO(checkpoint << " " << cut << " tp " << s.tp);
        const auto subject = make_subject(s);
        const auto runs = run_ranks<B>(
            *subject, subject->tensors, [](int rank) { return std::make_unique<B>(rank); },
            [&](B& b) { return b.activation(*input.values, input.shape); },
            [](std::size_t, B&, ModuleOn<B>&) {});
        REQUIRE(runs.findings.empty());
        for (const auto& ids : runs.outputs)
          for (Index t = 0; t < s.tokens; ++t, ++looked)
            CHECK(static_cast<Index>(ids->value(t, 0)) == wanted[static_cast<std::size_t>(t)]);
      }
    CHECK(looked > s.tokens * 2 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));  // every tp with 16*tp
  }
}

TEST_CASE("checkpoint: embedding and head of real weights verify, tied or not") {
  for (const auto& [layer, checkpoint, module] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {"embedding", "tiny-llama", "model.embed_tokens"},
           {"lm_head", "tiny-llama", "lm_head"},
           {"embedding", "tiny-qwen3-tied", "model.embed_tokens"},
           {"lm_head", "tiny-qwen3-tied", "model.embed_tokens"}}) {
    LayerSpec s = spec_of(layer, checkpoint, module);
    CHECK(s.tied ==
          (layer == std::string("lm_head") && module == std::string("model.embed_tokens")));
    CHECK(s.values.size() == 1);
    s.tp = 4;
    s.vocab_cut = "padded(64)";
    INFO(layer << " " << checkpoint << " " << module);
    const auto subject = make_subject(s);
    REQUIRE(subject->tensors.size() == 1);
    CHECK(subject->tensors[0].stored->values != nullptr);
    CHECK(failed(verify(*subject)).empty());
  }
  CHECK_THROWS_AS(spec_of("embedding", "tiny-llama", "lm_head"), cli::UsageError);
  CHECK_THROWS_AS(spec_of("lm_head", "tiny-llama", "model.layers.0.mlp.down_proj"),
                  cli::UsageError);
  CHECK_THROWS_AS(spec_of("lm_head", "tiny-llama", "model.layers.0.mlp"), cli::UsageError);
}

TEST_CASE("checkpoint: the head's tensor of a tied model may be there, and is not read") {
  const CheckpointFiles files(test_data("tiny-qwen3-tied"));
  const BoundModel tied = model_of("tiny-qwen3-tied");
  REQUIRE(tied.shape.tied);
  std::vector<SafetensorsEntry> held = files.entries();
  for (const SafetensorsEntry& e : held) REQUIRE(e.name != "lm_head.weight");
  const CheckResult absent = check_names(tied, held);
  CHECK(absent.result == Outcome::pass);
  CHECK(absent.message.find("no meaning") == std::string::npos);

  const VocabShape& v = tied.shape.vocab;
  held.push_back(entry_of("lm_head.weight", {v.vocab, v.hidden}));
  const CheckResult present = check_names(tied, held);
  CHECK(present.result == Outcome::pass);
  CHECK(present.compared == absent.compared + 1);
  CHECK(present.message == absent.message.substr(0, absent.message.find(" of ")) + " of " +
                               std::to_string(held.size()) +
                               absent.message.substr(absent.message.find(" tensors")) +
                               "; 1 with no meaning");
  for (const ModelTensor& t : tied.tensors)
    if (t.name == "lm_head.weight") CHECK((t.optional && t.param.empty()));

  // Of another size it is no copy of the table; and a model that is not tied needs it.
  held.back() = entry_of("lm_head.weight", {v.vocab + 1, v.hidden});
  CHECK(check_names(tied, held).result == Outcome::fail);
  const CheckpointFiles others(test_data("tiny-llama"));
  std::vector<SafetensorsEntry> untied = others.entries();
  std::erase_if(untied, [](const SafetensorsEntry& e) { return e.name == "lm_head.weight"; });
  const CheckResult missing = check_names(model_of("tiny-llama"), untied);
  REQUIRE(missing.findings.size() == 1);
  CHECK(missing.findings[0].tensor == "lm_head.weight");
}

}  // namespace vocab_checkpoint_tests
