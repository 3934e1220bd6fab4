// SPDX-License-Identifier: MIT
// The command on norm, attention and decoder: their options, their models, their smallest cases.
#include <nlohmann/json.hpp>

#include <sim/request.hpp>
#include <tests/support/catch.hpp>
#include <tests/support/run_command.hpp>
#include <tpsim/verify/replay.hpp>
#include <tpsim/verify/shrink.hpp>

namespace tpsim::test::command_decoder_tests {
namespace {

using DecoderJson = nlohmann::ordered_json;

constexpr const char* small_sizes =
    " --hidden 8 --heads 4 --kv-heads 2 --head-dim 4 --intermediate 8 --tokens 6";

DecoderJson decoder_json(const std::string& line) {
  const Ran ran = run_line(line + " --json");
  CAPTURE(line, ran.out, ran.err);
  CHECK(ran.status == 0);
  return DecoderJson::parse(ran.out);
}
std::vector<std::string> tensor_names(const DecoderJson& j) {
  std::vector<std::string> names;
  for (const auto& t : j["tensors"]) names.push_back(t["name"]);
  return names;
}
const DecoderJson& check_of(const DecoderJson& j, const std::string& id) {
  for (const auto& c : j["checks"])
    if (c["id"] == id) return c;
  throw std::runtime_error("no check " + id);
}
void refused_with(const std::string& line, const std::vector<std::string>& phrases) {
  const Ran ran = run_line(line);
  CAPTURE(line, ran.out, ran.err);
  CHECK(ran.status == 2);
  CHECK(ran.out == "");
  for (const std::string& phrase : phrases) CHECK(has(ran.err, phrase));
}
LayerSpec parsed(const std::vector<std::string>& words) {
  return cli::parse_command_line({words.begin() + 1, words.end()}).layer.specs.at(0);
}

}  // namespace

TEST_CASE("command decoder: every shape and option verifies, with no check skipped", "[command]") {
  for (const char* line :
       {"--tp 4 --layer norm", "--tp 2 --layer norm --norm layer --hidden 7",
        "--tp 2 --layer norm --norm layer_without_bias --dtype bf16",
        "--tp 8 --layer norm --qk-norm full --heads 8 --kv-heads 8",
        "--tp 2 --layer attention --hidden 6 --heads 2 --kv-heads 1 --head-dim 5 --no-rope",
        "--tp 4 --layer attention --kv-heads 1 --qk-norm full --bias",
        "--tp 8 --layer attention --heads 8 --kv-heads 2 --sinks --window 2 --dtype bf16",
        "--tp 2 --layer attention --v-head-dim 3 --rotary-dim 2 --alibi",
        "--tp 1 --layer decoder --qk-norm head --qkv-bias",
        "--tp 3 --layer decoder --heads 3 "
        "--kv-heads 3 --intermediate 9 --hidden 5 --norm layer --o-bias --mlp-bias",
        "--tp 4 --layer decoder --kv-heads 1 --plain-mlp --activation gelu --parallel-residual "
        "--bias --norm layer",
        "--tp 2 --layer decoder --activation gelu_tanh --tokens 1"}) {
    std::string all = line;
    // Sizes that the line does not give itself.
    const std::vector<std::string> words = words_of(small_sizes);
    for (std::size_t i = 0; i < words.size(); i += 2)
      if (!has(line, words[i] + " ")) all += " " + words[i] + " " + words[i + 1];
    const DecoderJson j = decoder_json(all);
    CAPTURE(all);
    CHECK(j["result"] == "pass");
    CHECK(check_of(j, "state")["result"] == "pass");
    CHECK(check_of(j, "exact")["result"] == "pass");
    CHECK(check_of(j, "rounding")["result"] == "pass");
    if (j["request"]["layer"] != "norm") CHECK(check_of(j, "integer")["result"] == "pass");
  }
}

TEST_CASE("command decoder: an option changes its own field of the request alone", "[command]") {
  struct Option {
    const char *text, *field;
    DecoderJson value;
  };
  const auto check = [](const std::string& layer, const std::vector<Option>& options) {
    const std::string line = "--tp 2 --reading static --layer " + layer + small_sizes;
    const DecoderJson plain = decoder_json(line)["request"];
    for (const Option& o : options) {
      CAPTURE(layer, o.text);
      DecoderJson wanted = plain;
      REQUIRE(wanted.contains(o.field));
      CHECK(wanted[o.field] != o.value);
      wanted[o.field] = o.value;
      CHECK(decoder_json(line + " " + o.text)["request"] == wanted);
    }
  };
  const std::vector<Option> attention{{"--qk-norm head", "qk_norm", "head"},
                                      {"--qk-norm full", "qk_norm", "full"},
                                      {"--rotary-dim 2", "rotary_dim", 2},
                                      {"--no-rope", "rotary_dim", nullptr},
                                      {"--window 3", "window", 3},
                                      {"--alibi", "alibi", true},
                                      {"--sinks", "sinks", true},
                                      {"--chunk 1", "chunk", 1},
                                      {"--qkv-bias", "qkv_bias", true},
                                      {"--o-bias", "o_bias", true},
                                      {"--v-head-dim 3", "v_head_dim", 3}};
  check("attention", attention);
  std::vector<Option> decoder = attention;
  for (const Option& o : std::vector<Option>{{"--mlp-bias", "mlp_bias", true},
                                             {"--norm layer", "norm", "layer"},
                                             {"--plain-mlp", "plain_mlp", true},
                                             {"--activation gelu", "activation", "gelu"},
                                             {"--activation gelu_tanh", "activation", "gelu_tanh"},
                                             {"--parallel-residual", "parallel_residual", true}})
    decoder.push_back(o);
  check("decoder", decoder);
  check("norm", {{"--norm layer", "norm", "layer"},
                 {"--norm layer_without_bias", "norm", "layer_without_bias"}});
  const DecoderJson heads =
      decoder_json(std::string("--tp 2 --layer norm --qk-norm full") + small_sizes)["request"];
  CHECK(heads["heads"] == 4);
  CHECK_FALSE(heads.contains("hidden"));
}

TEST_CASE("command decoder: an option has its effect on what runs", "[command]") {
  const std::string line = std::string("--tp 2 --layer decoder") + small_sizes;
  using Names = std::vector<std::string>;
  const auto names = [&](const std::string& more) {
    return tensor_names(decoder_json(line + " --reading static" + more));
  };
  const Names plain{"input_layernorm.weight",  "self_attn.qkv_proj.weight",
                    "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                    "mlp.gate_up_proj.weight", "mlp.down_proj.weight"};
  CHECK(names("") == plain);
  const auto adds = [&](const std::string& more, const Names& added) {
    CAPTURE(more);
    const Names have = names(more);
    CHECK(have.size() == plain.size() + added.size());
    for (const std::string& name : added)
      CHECK(std::find(have.begin(), have.end(), name) != have.end());
  };
  adds(" --qk-norm head", {"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
  adds(" --qk-norm full", {"self_attn.q_norm.weight", "self_attn.k_norm.weight"});
  adds(" --sinks", {"self_attn.sinks.weight"});
  adds(" --norm layer", {"input_layernorm.bias", "post_attention_layernorm.bias"});
  adds(" --norm layer_without_bias", {});
  adds(" --qkv-bias", {"self_attn.qkv_proj.bias"});
  adds(" --o-bias", {"self_attn.o_proj.bias"});
  adds(" --mlp-bias", {"mlp.gate_up_proj.bias", "mlp.down_proj.bias"});
  adds(" --bias", {"self_attn.qkv_proj.bias", "self_attn.o_proj.bias", "mlp.gate_up_proj.bias",
                   "mlp.down_proj.bias"});
  Names ungated = plain;
  ungated[4] = "mlp.up_proj.weight";
  CHECK(names(" --plain-mlp") == ungated);

  const auto collectives = [&](const std::string& more) {
    return decoder_json(line + " --reading static" + more)["collectives"].size();
  };
  CHECK(collectives("") == 2);
  CHECK(collectives(" --parallel-residual") == 1);
  CHECK(collectives(" --qk-norm full") == 4);
  CHECK(collectives(" --chunk 1") == 8);  // six tokens are sequences of four and two
  CHECK(collectives(" --chunk 3") == 4);

  // What leaves tensors and collectives as they are changes numbers.
  const auto floor = [&](const std::string& more) {
    const DecoderJson j = decoder_json(line + " --reading numeric" + more);
    return check_of(j, "rounding")["detection_floor"].get<double>();
  };
  std::vector<double> seen{floor("")};
  for (const char* more : {" --no-rope", " --rotary-dim 2", " --window 1", " --alibi",
                           " --activation gelu", " --activation gelu_tanh"}) {
    CAPTURE(more);
    const double now = floor(more);
    CHECK(std::find(seen.begin(), seen.end(), now) == seen.end());
    seen.push_back(now);
  }
}

TEST_CASE("command decoder: an option without effect is refused", "[command]") {
  const std::vector<std::string> attends{"--rotary-dim 2", "--no-rope", "--window 2", "--alibi",
                                         "--sinks",        "--chunk 1", "--qkv-bias", "--o-bias"};
  const std::vector<std::string> decodes{"--mlp-bias", "--plain-mlp", "--activation gelu",
                                         "--parallel-residual"};
  const auto refuse = [](const std::string& layer, const std::string& option) {
    refused_with(
        "--tp 2 --layer " + layer + " " + option,
        {"error: " + option.substr(0, option.find(' ')) + " is no option of layer " + layer,
         "hint: it belongs to "});
  };
  for (const std::string layer : {"norm", "mlp", "qkv", "lm_head"})
    for (const std::string& option : attends) refuse(layer, option);
  for (const std::string layer : {"norm", "attention", "mlp"})
    for (const std::string& option : decodes) refuse(layer, option);
  for (const std::string layer : {"column", "mlp", "qkv"}) refuse(layer, "--qk-norm head");
  for (const std::string layer : {"attention", "mlp"}) refuse(layer, "--norm layer");
  for (const std::string layer : {"norm", "attention", "decoder"})
    for (const char* option :
         {"--gather-output", "--skip-bias-add", "--in 4", "--parts 2,2", "--disk x", "--tied"})
      refuse(layer, option);
  refuse("norm", "--bias");
  refuse("norm", "--v-head-dim 2");
  refused_with("--tp 2 --layer norm --qk-norm head", {"--qk-norm head is no option of layer norm"});
  refused_with("--tp 2 --layer norm --qk-norm full --norm layer", {"leave one of the two out"});
  refused_with("--tp 2 --layer decoder --no-rope --rotary-dim 2", {"leave one of the two out"});
  refused_with("--tp 2 --layer decoder --toy --sinks", {"--toy has its own numbers"});
  refused_with("--tp 2 --layer attention --weights x --module y",
               {"--weights is no option of layer attention", "hint: it goes with qkv"});
}

TEST_CASE("command decoder: words and numbers that are none are refused", "[command]") {
  const std::string line = "--tp 2 --layer decoder ";
  refused_with(line + "--qk-norm heads", {"unknown qk-norm 'heads'", "did you mean 'head'?"});
  refused_with(line + "--activation relu", {"unknown activation", "silu, gelu or gelu_tanh"});
  refused_with(line + "--norm layr", {"unknown norm", "did you mean 'layer'?"});
  for (const char* option : {"--window", "--rotary-dim"})
    for (const char* value : {"0", "-1", "x", "99999999999"})
      refused_with(line + option + " " + value, {option, "hint: "});
  for (const char* value : {"-1", "x", "1.5"}) refused_with(line + "--chunk " + value, {"--chunk"});
  refused_with("--tp 2 --layer all --qk-norm heads", {"unknown qk-norm"});
}

TEST_CASE("command decoder: an illegal shape is refused with every reason", "[command]") {
  refused_with("--tp 3 --layer decoder --head-dim 5",
               {"32 query heads over 3", "8 kv heads over 3", "14336 intermediate columns over 3",
                "the rotary part is 5 columns of a head of 5"});
  refused_with("--tp 2 --layer attention --rotary-dim 130",
               {"the rotary part is 130 columns of a head of 128"});
  refused_with("--tp 3 --layer decoder", {"hint: tp can be 1, 2, 4, 8, 16 or 32"});
  refused_with("--tp 3 --layer norm --qk-norm full", {"32 query heads over 3"});
  CHECK(run_line("--tp 3 --layer norm --hidden 8").status == 0);  // nothing is cut
  refused_with("--tp 2 --layer decoder --hidden 16777216 --intermediate 16777216", {"too large"});
  refused_with("--tp 2 --layer decoder --chunk 1 --tokens 16777216",
               {"--chunk 1 makes 11184811 steps", "at most 1024 steps"});
  refused_with("--tp 2 --layer decoder --reading exact --tokens 16777216",
               {"GiB for its numbers", "fewer tokens"});
}

TEST_CASE("command decoder: choices come from the model", "[command]") {
  const auto request = [](const std::string& model, const std::string& more) {
    return decoder_json("--tp 2 --layer decoder --reading static --model " + model +
                        more)["request"];
  };
  const DecoderJson llama = request("llama-3-8b", "");
  CHECK(llama["rotary_dim"] == 128);
  CHECK(llama["qk_norm"] == "none");
  CHECK(llama["norm"] == "rms");
  CHECK(llama["plain_mlp"] == false);
  CHECK(llama["activation"] == "silu");
  CHECK(request("qwen3-8b", "")["qk_norm"] == "head");
  CHECK(request("qwen3-8b", " --qk-norm none")["qk_norm"] == "none");
  const DecoderJson qwen2 = request("qwen2.5-7b", "");
  CHECK(qwen2["bias"] == false);
  CHECK(qwen2["qkv_bias"] == true);
  CHECK(qwen2["o_bias"] == false);
  const DecoderJson pythia = request("pythia-6.9b", "");
  CHECK(pythia["norm"] == "layer");
  CHECK(pythia["plain_mlp"] == true);
  CHECK(pythia["activation"] == "gelu");
  CHECK(pythia["parallel_residual"] == true);
  CHECK(pythia["rotary_dim"] == 32);
  for (const char* bias : {"qkv_bias", "o_bias", "mlp_bias"}) CHECK(pythia[bias] == true);
  CHECK(request("pythia-6.9b", " --norm rms --head-dim 2")["rotary_dim"] == 2);
  CHECK(run_line("--tp 2 --layer norm --model qwen3-0.6b --tokens 2").status == 0);
}

TEST_CASE("command decoder: a replayed command asks for the same layer", "[command]") {
  for (const char* line :
       {"tpsim --tp 2 --layer norm --hidden 6 --norm layer --tokens 3",
        "tpsim --tp 2 --layer norm --heads 4 --kv-heads 2 --head-dim 6 --qk-norm full --tokens 3",
        "tpsim --tp 2 --layer attention --heads 4 --kv-heads 2 --head-dim 6 --hidden 10 --tokens 3",
        "tpsim --tp 4 --layer attention --heads 8 --kv-heads 2 --head-dim 6 --v-head-dim 3 "
        "--hidden 10 --qk-norm head --rotary-dim 4 --window 3 --alibi --sinks --qkv-bias --o-bias "
        "--chunk 2 --tokens 9",
        "tpsim --tp 4 --layer attention --heads 8 --kv-heads 2 --head-dim 5 --hidden 10 --no-rope "
        "--tokens 9 --bias",
        "tpsim --tp 4 --layer decoder --heads 8 --kv-heads 2 --head-dim 6 --hidden 10 --qk-norm "
        "full --qkv-bias --intermediate 12 --mlp-bias --norm layer_without_bias --plain-mlp "
        "--activation gelu_tanh --parallel-residual --tokens 9"}) {
    CAPTURE(line);
    CHECK(replay_command(parsed(words_of(line))) == words_of(line));
  }
  // The model's own choices are told too: a command names no model.
  for (const char* model : {"llama-3-8b", "qwen2.5-7b", "qwen3-8b", "pythia-6.9b"}) {
    const std::string line =
        std::string("--tp 2 --layer decoder --reading static --model ") + model;
    const LayerSpec spec = parsed(words_of("tpsim " + line));
    std::vector<std::string> words = replay_command(spec);
    CAPTURE(shell_line(words));
    DecoderJson wanted = decoder_json(line)["request"];
    words.insert(words.end(), {"--reading", "static"});
    const std::string again = shell_line(words);
    DecoderJson have = decoder_json(again.substr(again.find(' ') + 1))["request"];
    CHECK(have["model"] == "llama-3-8b");
    have["model"] = wanted["model"];
    CHECK(have == wanted);
  }
}

TEST_CASE("command decoder: what fails is made small, and simple", "[command]") {
  LayerSpec spec = parsed(words_of(
      "tpsim --tp 4 --layer decoder --heads 8 --kv-heads 4 --head-dim 16 --hidden 64 --qk-norm "
      "head --window 5 --alibi --sinks --bias --chunk 3 --intermediate 32 --norm layer "
      "--activation gelu --parallel-residual --tokens 16"));
  const auto smallest = [&](const std::function<bool(const LayerSpec&)>& fails) {
    return shell_line(replay_command(shrink(spec, fails).spec));
  };
  CHECK(smallest([](const LayerSpec&) { return true; }) ==
        "tpsim --tp 1 --layer decoder --heads 1 --kv-heads 1 --head-dim 2 --hidden 1 "
        "--intermediate 1 --tokens 1 --bias");
  CHECK(smallest([](const LayerSpec& s) { return s.tp > 1 && s.decoder.attention.alibi; }) ==
        "tpsim --tp 2 --layer decoder --heads 2 --kv-heads 1 --head-dim 2 --hidden 1 --alibi "
        "--intermediate 2 --tokens 1 --bias");
  CHECK(smallest([](const LayerSpec& s) {
          return s.chunk > 0 && s.tokens > 3 && s.decoder.attention.window > 1 &&
                 s.decoder.norm == NormKind::layer;
        }) ==
        "tpsim --tp 1 --layer decoder --heads 1 --kv-heads 1 --head-dim 2 --hidden 1 "
        "--window 2 --chunk 1 --intermediate 1 --norm layer --tokens 4 --bias");
  spec.decoder.attention.rope->rotary_dim = 8;
  CHECK(smallest([](const LayerSpec& s) {
          return s.qkv.head_dim > 4 && s.decoder.attention.rope->rotary_dim > 2;
        }) ==
        "tpsim --tp 1 --layer decoder --heads 1 --kv-heads 1 --head-dim 5 --hidden 1 "
        "--rotary-dim 4 --intermediate 1 --tokens 1 --bias");
}

TEST_CASE("command decoder: all of a block has its norm, attention and layer too", "[command]") {
  const DecoderJson j = decoder_json("--tp 2 --layer all --reading static --qk-norm head");
  std::vector<std::string> layers;
  for (const auto& layer : j["layers"]) layers.push_back(layer["layer"]);
  CHECK(layers == std::vector<std::string>{"column", "row", "merged", "qkv", "replicated", "mlp",
                                           "norm", "attention", "decoder"});
  CHECK(j["layers"][6]["request"]["qk_norm"] == "none");
  CHECK(j["layers"][7]["request"]["qk_norm"] == "head");
}

TEST_CASE("command decoder: steps are held to bounds as sharp as those of a prefill", "[command]") {
  const std::string line =
      "--tp 4 --layer decoder --model qwen3-0.6b --dtype bf16 --reading numeric";
  const DecoderJson prefill = decoder_json(line);
  for (const char* chunk : {" --chunk 5", " --chunk 1"}) {
    const DecoderJson steps = decoder_json(line + chunk);
    for (const char* id : {"integer", "rounding", "replicas"}) {
      CAPTURE(chunk, id);
      CHECK(check_of(steps, id)["result"] == "pass");
      CHECK(check_of(steps, id)["compared"] == check_of(prefill, id)["compared"]);
    }
    const auto floor_of = [](const DecoderJson& j) {
      return check_of(j, "rounding")["detection_floor"].get<double>();
    };
    // The bounds are the same; a floor is relative to what one pass computes, here a few tokens.
    CHECK(floor_of(steps) >= floor_of(prefill));
    CHECK(floor_of(steps) < 1.5 * floor_of(prefill));
  }
  // What shows in later steps alone.
  const Ran fault = run_line(line + " --chunk 5 --fault positions-restart");
  CHECK(fault.status == 1);
}

TEST_CASE("command decoder: equal collectives of several steps are one line", "[command]") {
  const std::string line = std::string("--tp 2 --layer decoder --reading static") + small_sizes;
  CHECK(count_of_text(run_line(line).out, "\n2 times all_reduce [6, 8] f32 in group tp at ") == 1);
  const Ran steps = run_line(line + " --chunk 3");
  CHECK(steps.status == 0);
  CHECK(has(steps.out, "\n2 times all_reduce [5, 8] "));
  CHECK(has(steps.out, "\n2 times all_reduce [1, 8] "));
}

}  // namespace tpsim::test::command_decoder_tests
