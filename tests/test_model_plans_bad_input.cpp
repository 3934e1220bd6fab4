// SPDX-License-Identifier: MIT
// Plans, configs and checkpoints that are wrong: every problem is told, and all at once.
#include <tpsim/checkpoint/bound_model.hpp>
#include <tpsim/checkpoint/built_in_models.hpp>
#include <tpsim/checkpoint/check_names.hpp>

#include <algorithm>

#include <tests/support/catch.hpp>
#include <tests/support/plan_files.hpp>

namespace tpsim::test::model_plans_bad_input_tests {
namespace {

/// A llama plan with these changes (a merge patch) is refused with these phrases.
std::string bad_plan(const std::string& patch, const std::vector<std::string>& phrases) {
  return missing([&] { (void)parse_model_plan(patched(plan_text("llama"), patch), "my.json"); },
                 phrases);
}
std::string bad_config(const std::string& model, const std::string& changes,
                       const std::vector<std::string>& phrases) {
  return missing(
      [&] { (void)bind_model(edited(find_built_in_model(model)->config, changes), "config.json"); },
      phrases);
}

std::size_t count_violations(const std::string& patch) {
  try {
    (void)parse_model_plan(patched(plan_text("llama"), patch), "my.json");
  } catch (const LayoutError& e) {
    return e.violations().size();
  }
  return 0;
}

TEST_CASE("bad plans: an undefined axis, and one that no tensor has") {
  CHECK(bad_plan(R"({"axes": {"i": null}})",
                 {"axis i is not defined", "mlp.gate_proj.weight", "mlp.down_proj.weight"}) == "");
  CHECK(bad_plan(R"({"tensors": {"mlp.down_proj.weight": {"cols": "w"}}})",
                 {"mlp.down_proj.weight cols", "'w'"}) == "");
  CHECK(bad_plan(R"({"axes": {"m": "v_head_dim"}})",
                 {"rows 'kv*d' of part v do not multiply out to kv*m",
                  "axis 'm' is defined, and no tensor has it"}) == "");
  CHECK(bad_plan(R"({"axes": {"E": "num_experts"}})", {"axis 'E' is unknown; axes are H, V"}) ==
        "");
  CHECK(bad_plan(R"({"axes": {"h": "num_attention_heads"}})", {"axis h is kv*g"}) == "");
  CHECK(bad_plan(R"({"axes": {"g": null}})", {"axis g is not defined, and kv is"}) == "");
}

TEST_CASE("bad plans: rules that match nothing") {
  CHECK(bad_plan(R"({"tensors": {"self_attn.o_proj.weight": {"into": "self_attn.out_proj"}}})",
                 {"'self_attn.out_proj', which matches nothing", "did you mean self_attn.o_proj?",
                  "no tensor goes into self_attn.o_proj"}) == "");
  CHECK(bad_plan(R"({"tensors": {"mlp.up_proj.weight": {"rows": "uq:i"}}})",
                 {"part 'uq' is none of mlp.gate_up_proj; legal: gate, up",
                  "no tensor goes into part up of mlp.gate_up_proj"}) == "");
  CHECK(bad_plan(R"({"tensors": {"mlp.up_proj.weight": {"cut": "up:i even, gate:i even"}}})",
                 {"the rows have no part 'gate'"}) == "");
  CHECK(bad_plan(R"({"tensors": {"self_attn.v_proj.weight": null}})",
                 {"no tensor goes into part v of self_attn.qkv_proj"}) == "");
  CHECK(bad_plan(R"({"model": {"model.norm.weight": null}})", {"no tensor goes into norm"}) == "");
}

TEST_CASE("bad plans: expressions that do not multiply out") {
  CHECK(bad_plan(R"({"tensors": {"self_attn.q_proj.weight": {"rows": "q:kv*d"}}})",
                 {"rows 'kv*d' of part q do not multiply out to kv*g*d"}) == "");
  CHECK(bad_plan(R"({"tensors": {"self_attn.o_proj.weight": {"cols": "kv*d"}}})",
                 {"'self_attn.o_proj.weight': cols 'kv*d' do not multiply out to kv*g*m"}) == "");
  CHECK(bad_plan(R"({"tensors": {"self_attn.q_proj.weight": {"cut": "kv even"}}})",
                 {"cut 'kv even' divides kv, wanted kv*g"}) == "");
  CHECK(bad_plan(R"({"tensors": {"self_attn.k_proj.weight": {"cut": "kv*d even"}}})",
                 {"cut 'kv*d even' divides kv*d, wanted kv"}) == "");
  CHECK(bad_plan(R"({"tensors": {"self_attn.q_proj.weight": {"rows": "q:(kv*g"}}})", {"q_proj"}) ==
        "");
}

TEST_CASE("bad plans: tensors without a rule, or with one that the layer cannot have") {
  CHECK(bad_plan(R"({"tensors": {"mlp.down_proj.weight": {"style": null, "cut": null}}})",
                 {"has style 'replicated' and no cut; mlp.down_proj needs style row"}) == "");
  CHECK(bad_plan(R"({"tensors": {"mlp.down_proj.weight": {"cut": null}}})",
                 {"style row needs a cut"}) == "");
  CHECK(bad_plan(R"({"tensors": {"mlp.down_proj.weight": {"rows": null}}})", {"rows is missing"}) ==
        "");
  CHECK(bad_plan(R"({"tensors": {"input_layernorm.weight": {"bias": true}}})",
                 {"an rms norm has none"}) == "");
  CHECK(bad_plan(R"({"model": {"lm_head.weight": {"cut": "V even"}}})",
                 {"the embedding and the head are cut differently"}) == "");
}

TEST_CASE("bad plans: keys and expressions") {
  CHECK(bad_plan(R"({"tensor": {}})", {"no key 'tensor'", "did you mean tensors?"}) == "");
  CHECK(bad_plan(R"({"decoder": {"theta": 1}})", {"decoder: has no key 'theta'"}) == "");
  CHECK(bad_plan(R"({"decoder": {"norm": "l2"}})", {"decoder.norm is 'l2'; legal: rms, layer"}) ==
        "");
  CHECK(bad_plan(R"({"layer": "model.layers."})", {"must have {} once"}) == "");
  CHECK(bad_plan(R"({"model_types": "llama"})", {"model_types must be a list of texts"}) == "");
  CHECK(bad_plan(R"({"axes": {"d": "head_dim else"}})", {"'axis d'", "must follow"}) == "");
  CHECK(bad_plan(R"({"axes": {"d": "head_dim + 1"}})", {"'axis d'", "where '+' does"}) == "");
  CHECK(bad_plan(R"({"decoder": {"eps": "1e-6x"}})", {"'1e-6x' is no number"}) == "");
  CHECK(missing([] { (void)parse_model_plan("[]", "my.json"); }, {"my.json", "JSON object"}) == "");
  CHECK(missing([] { (void)parse_model_plan("{}", "my.json"); },
                {"architecture is missing", "model_types is missing", "axes is missing",
                 "decoder is missing", "layer is missing", "tensors is missing"}) == "");
}

TEST_CASE("bad plans: all problems are told at once") {
  const std::string patch = R"({"axes": {"E": "x"}, "layer": "model.", "decoder": {"norm": "l2"},
      "tensors": {"mlp.down_proj.weight": {"cols": "H"}, "mlp.up_proj.weight": {"cut": null}}})";
  CHECK(bad_plan(patch, {"'E'", "{} once", "'l2'", "cols 'H' do not multiply out to i",
                         "style column needs a cut"}) == "");
  CHECK(count_violations(patch) == 6);
  CHECK(count_violations("{}") == 0);
}

TEST_CASE("bad configs: keys that are missing, of the wrong type, or contradict each other") {
  CHECK(bad_config("llama-3-8b", R"({"hidden_size": null, "vocab_size": null, "hidden_act": null})",
                   {"hidden_size is missing (axis H)", "vocab_size is missing (axis V)",
                    "hidden_act is missing", "head_dim, or hidden_size"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"num_key_value_heads": 5, "intermediate_size": -4,
                                     "rms_norm_eps": "small", "tie_word_embeddings": 1})",
                   {"axis g: num_attention_heads 32 / num_key_value_heads 5 leaves 2",
                    "intermediate_size is '-4'", "rms_norm_eps is '\"small\"'; legal: a number",
                    "tie_word_embeddings is '1'; legal: true, false"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"hidden_size": 4100})",
                   {"hidden_size 4100 / num_attention_heads 32 leaves 4"}) == "");
  CHECK(bad_config("qwen3-8b", R"({"head_dim": null})", {"head_dim is missing (axis d)"}) == "");
  CHECK(bad_config("qwen3-8b", R"({"head_dim": 127})", {"rotary part is 127 columns"}) == "");
  CHECK(bad_config("qwen2.5-7b", R"({"attention_bias": false})",
                   {"attention_bias is 'false', but qwen2 always has true"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"dtype": "float16"})", {"torch_dtype", "contradicts dtype"}) ==
        "");
  CHECK(bad_config("qwen2.5-7b",
                   R"({"use_sliding_window": true, "layer_types": ["full_attention"]})",
                   {"layer_types must be a list of 28 entries"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"num_attention_heads": 16777216, "num_key_value_heads": 1,
                                     "head_dim": 1024})",
                   {"times d 1024 are over 16777216"}) == "");
}

TEST_CASE("bad configs: a hostile number of layers is refused before they are listed") {
  CHECK(bad_config("llama-3-8b", R"({"num_hidden_layers": 10001})",
                   {"num_hidden_layers is '10001'; legal: an integer from 1 to 10000"}) == "");
}

TEST_CASE("bad configs: what is not supported is refused by name") {
  CHECK(bad_config("llama-3-8b", R"({"hidden_act": "relu2"})",
                   {"activation 'relu2' is not supported; supported: silu, swish, gelu"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"rope_scaling": {"rope_type": "longrope", "factor": 4}})",
                   {"rope scaling 'longrope' is not supported", "default, linear, llama3, yarn"}) ==
        "");
  CHECK(bad_config("phi-3-mini", R"({"rope_scaling": {"type": "yarn", "factor": 4}})",
                   {"rope scaling 'yarn' is not supported here; supported: default"}) == "");
  CHECK(
      bad_config("llama-3-8b", R"({"rope_scaling": {"type": "llama3"}})",
                 {"factor is missing", "low_freq_factor is missing", "high_freq_factor is missing",
                  "original_max_position_embeddings is missing"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"rope_scaling": {"type": "yarn", "factor": 4,
                                     "truncate": false}})",
                   {"truncate is false"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"rope_parameters": {"rope_theta": 7}})",
                   {"'rope_theta' contradicts rope_parameters"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"rope_parameters": {"full_attention": {"rope_theta": 7}}})",
                   {"differ by layer"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"quantization_config": {"quant_method": "gptq"}})",
                   {"quantised weights"}) == "");
}

TEST_CASE("bad configs: an unknown model_type says which exist and how to write a plan") {
  const std::vector<std::string> known{"gpt_neox", "internlm2", "llama",       "mistral",  "phi3",
                                       "qwen2",    "qwen3",     "--plan FILE", "README.md"};
  CHECK(bad_config("llama-3-8b", R"({"model_type": "deepseek_v3"})", known) == "");
  CHECK(bad_config("llama-3-8b", R"({"model_type": "lama"})", {"did you mean llama?"}) == "");
  CHECK(bad_config("llama-3-8b", R"({"model_type": null})", {"model_type is missing"}) == "");
  CHECK(missing(
            [] {
              (void)bind_model(*find_plan("llama"), find_built_in_model("qwen3-8b")->config, "c");
            },
            {"model_type is 'qwen3'; the plan of llama serves llama"}) == "");
}

// Checkpoints ------------------------------------------------------------------------------------

BoundModel small_llama() {
  return bind_model(edited(small_config, R"({"num_hidden_layers": 2})"), "config.json");
}

std::vector<SafetensorsEntry> right_entries(const BoundModel& model) {
  std::vector<SafetensorsEntry> out;
  for (const ModelTensor& t : model.tensors)
    out.push_back(entry(t.name, t.shape.rank() == 1
                                    ? std::vector<Index>{t.shape.rows()}
                                    : std::vector<Index>{t.shape.rows(), t.shape.cols()}));
  return out;
}
SafetensorsEntry& named(std::vector<SafetensorsEntry>& entries, const std::string& name) {
  const auto it =
      std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
  REQUIRE(it != entries.end());
  return *it;
}

TEST_CASE("names: missing, extra, misshapen, mistyped and doubled tensors are all told at once") {
  const BoundModel model = small_llama();
  std::vector<SafetensorsEntry> held = right_entries(model);
  REQUIRE(check_names(model, held).result == Outcome::pass);
  CHECK(check_names(model, held).compared == 21);

  named(held, "model.layers.1.self_attn.k_proj.weight").name =
      "model.layers.1.self_attn.kproj.weight";                     // missing and extra
  named(held, "model.layers.0.mlp.up_proj.weight").dims = {4, 6};  // [6, 4] the other way
  named(held, "model.norm.weight").dims = {4, 1};
  named(held, "lm_head.weight").dtype = "I32";
  held.push_back(named(held, "model.embed_tokens.weight"));             // twice
  held.push_back(entry("model.layers.2.input_layernorm.weight", {4}));  // of no layer
  held.push_back(entry("model.layers.0.self_attn.rotary_emb.inv_freq", {1}));

  const CheckResult result = check_names(model, held);
  CHECK(result.id == "names");
  CHECK(result.result == Outcome::fail);
  CHECK(result.compared == 24);
  std::vector<std::string> messages;
  for (const Finding& f : result.findings) messages.push_back(f.message);
  std::sort(messages.begin(), messages.end());
  CHECK(messages ==
        std::vector<std::string>{
            "tensor 'lm_head.weight' is of dtype 'I32'; weights are F64, F32, F16 or BF16",
            "tensor 'model.embed_tokens.weight' is there twice",
            "tensor 'model.layers.0.mlp.up_proj.weight' is [4, 6], wanted [6, 4]",
            "tensor 'model.layers.1.self_attn.k_proj.weight' is missing: nothing writes "
            "layers.1.self_attn.qkv_proj.weight, part k",
            "tensor 'model.layers.1.self_attn.kproj.weight' [2, 4] is in no rule of the plan: "
            "nothing reads it",
            "tensor 'model.layers.2.input_layernorm.weight' [4] is in no rule of the plan: nothing "
            "reads it",
            "tensor 'model.norm.weight' is [4, 1], wanted [4]"});
  const auto hint = std::find_if(result.findings.begin(), result.findings.end(), [](auto& f) {
    return f.tensor == "model.layers.1.self_attn.kproj.weight";
  });
  REQUIRE(hint != result.findings.end());
  CHECK(hint->cause == "it may be 'model.layers.1.self_attn.k_proj.weight', which is missing");
}

TEST_CASE("names: no tensors is a failure of what is missing, not a pass") {
  const BoundModel model = small_llama();
  const CheckResult none = check_names(model, {});
  CHECK(none.compared == 0);
  CHECK(none.result == Outcome::fail);
  CHECK(none.findings.size() == model.tensors.size());
}

TEST_CASE("names: the head of a tied model may be there; of another shape it is told") {
  const BoundModel model = bind_model(find_built_in_model("qwen3-0.6b")->config, "config.json");
  std::vector<SafetensorsEntry> held = right_entries(model);
  CHECK(check_names(model, held).result == Outcome::pass);
  named(held, "lm_head.weight").dims = {4, 4};
  CHECK(check_names(model, held).findings.size() == 1);
  held.erase(std::find_if(held.begin(), held.end(),
                          [](const auto& e) { return e.name == "lm_head.weight"; }));
  CHECK(check_names(model, held).result == Outcome::pass);
}

}  // namespace
}  // namespace tpsim::test::model_plans_bad_input_tests
