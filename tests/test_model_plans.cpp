// SPDX-License-Identifier: MIT
// The plans of whole models against published configs, against checkpoints that transformers wrote,
// and against explicit formulas for the rows on disk.
#include <tpsim/checkpoint/built_in_models.hpp>
#include <tpsim/checkpoint/check_names.hpp>
#include <tpsim/checkpoint/checkpoint.hpp>

#include <algorithm>
#include <set>

#include <tests/support/catch.hpp>
#include <tests/support/plan_files.hpp>

namespace tpsim::test::model_plans_tests {
namespace {

const ModelTensor& tensor_of(const BoundModel& model, const std::string& name) {
  for (const ModelTensor& t : model.tensors)
    if (t.name == name) return t;
  FAIL("no tensor " << name);
  throw 0;
}

std::string listed(const CheckResult& result) {
  std::string out = result.message + "\n";
  for (const Finding& f : result.findings) out += f.message + " " + f.cause + "\n";
  return out;
}

TEST_CASE("model plans: a plan wants the tensors that transformers wrote, no more and no less") {
  std::set<std::string> architectures;
  for (const std::filesystem::path& folder : checkpoint_folders()) {
    CAPTURE(folder);
    const BoundModel model = bind_model(file_text(folder / "config.json"), folder.string());
    const CheckpointFiles files(folder);
    const CheckResult result = check_names(model, files.entries());
    CAPTURE(listed(result));
    CHECK(result.result == Outcome::pass);
    CHECK(result.compared == static_cast<Index>(files.names().size()));
    std::vector<std::string> wanted;
    for (const ModelTensor& t : model.tensors)
      if (!t.optional) wanted.push_back(t.name);
    std::sort(wanted.begin(), wanted.end());
    CHECK(wanted == files.names());
    CHECK(causal_lm_violations(model.shape, 1).empty());
    architectures.insert(model.architecture);
  }
  CHECK(architectures.count("qwen3") == 1);
}

TEST_CASE("model plans: built-in models have the sizes that were published") {
  struct Published {
    const char* name;
    Index hidden, intermediate, heads, kv_heads, head_dim;
    std::size_t layers;
    Index vocab;
  };
  const std::vector<Published> published{
      {"internlm2-7b", 4096, 14336, 32, 8, 128, 32, 92544},
      {"llama-2-7b", 4096, 11008, 32, 32, 128, 32, 32000},
      {"llama-3-8b", 4096, 14336, 32, 8, 128, 32, 128256},
      {"llama-3-70b", 8192, 28672, 64, 8, 128, 80, 128256},
      {"llama-3.1-405b", 16384, 53248, 128, 8, 128, 126, 128256},
      {"mistral-7b", 4096, 14336, 32, 8, 128, 32, 32000},
      {"phi-3-mini", 3072, 8192, 32, 32, 96, 32, 32064},
      {"pythia-6.9b", 4096, 16384, 32, 32, 128, 32, 50432},
      {"qwen2.5-7b", 3584, 18944, 28, 4, 128, 28, 152064},
      {"qwen2.5-72b", 8192, 29568, 64, 8, 128, 80, 152064},
      {"qwen3-0.6b", 1024, 3072, 16, 8, 128, 28, 151936},
      {"qwen3-8b", 4096, 12288, 32, 8, 128, 36, 151936},
      {"qwen3-32b", 5120, 25600, 64, 8, 128, 64, 151936},
  };
  REQUIRE(built_in_models().size() == published.size());
  for (std::size_t i = 0; i < published.size(); ++i) {
    const Published& p = published[i];
    CAPTURE(p.name);
    REQUIRE(built_in_models()[i].name == p.name);
    const BoundModel m = bind_model(built_in_models()[i].config, p.name);
    REQUIRE(m.shape.layers.size() == p.layers);
    REQUIRE(m.kind_of_layer.size() == p.layers);
    for (const DecoderShape& layer : m.shape.layers) {
      CHECK(layer.hidden() == p.hidden);
      CHECK(layer.intermediate == p.intermediate);
      CHECK(layer.attention.qkv.heads == p.heads);
      CHECK(layer.attention.qkv.kv_heads == p.kv_heads);
      CHECK(layer.attention.qkv.head_dim == p.head_dim);
      CHECK(layer.attention.rope.has_value());
    }
    CHECK(m.shape.vocab.vocab == p.vocab);
    CHECK(m.shape.vocab.pad_to == 64);
    for (const Index tp : {1, 2, 4})
      CHECK(causal_lm_violations(m.shape, tp).empty() ==
            violations(m.kinds[0].plan, static_cast<int>(tp)).empty());
    CHECK(violations(m.kinds[0].plan, 4).empty());
  }
}

TEST_CASE("model plans: what the configs say beyond sizes reaches the shape") {
  const auto bound = [](const char* name) {
    return bind_model(find_built_in_model(name)->config, name);
  };
  const BoundModel llama = bound("llama-3.1-405b");
  const DecoderShape& layer = llama.shape.layers.back();
  const RopeSpec& rope = *layer.attention.rope;
  CHECK(rope.rotary_dim == 128);
  CHECK(rope.theta == 500000);
  CHECK(rope.scaling == RopeScaling::llama3);
  CHECK(rope.factor == 8);
  CHECK(rope.low_freq_factor == 1);
  CHECK(rope.high_freq_factor == 4);
  CHECK(rope.original_positions == 8192);
  CHECK(layer.norm_eps == 1e-5);
  CHECK(llama.shape.max_positions == 131072);
  CHECK(llama.dtype == DType::bf16);

  const BoundModel neox = bound("pythia-6.9b");
  const DecoderShape& n = neox.shape.layers.front();
  CHECK(n.parallel_residual);
  CHECK_FALSE(n.gated);
  CHECK(n.activation == Activation::gelu);
  CHECK(n.norm == NormKind::layer);
  CHECK(neox.shape.norm == NormKind::layer);
  CHECK((n.attention.qkv_bias && n.attention.o_bias && n.mlp_bias));
  CHECK(n.attention.rope->rotary_dim == 32);
  CHECK(neox.kinds[0].plan.plan.collectives == std::vector<std::string>{"all_reduce"});
  CHECK(neox.dtype == DType::f16);

  const BoundModel qwen2 = bound("qwen2.5-7b");
  CHECK(qwen2.shape.layers[0].attention.qkv_bias);
  CHECK_FALSE(qwen2.shape.layers[0].attention.o_bias);
  CHECK_FALSE(qwen2.shape.layers[0].attention.window);  // use_sliding_window is false
  CHECK(qwen2.kinds[0].plan.plan.collectives ==
        std::vector<std::string>{"all_reduce", "all_reduce"});

  const BoundModel qwen3 = bound("qwen3-0.6b");
  CHECK(qwen3.shape.layers[0].attention.qk_norm == QkNorm::per_head);
  CHECK(qwen3.shape.tied);
  CHECK(tensor_of(qwen3, "lm_head.weight").optional);
  CHECK_FALSE(bound("qwen3-8b").shape.tied);

  CHECK(bound("mistral-7b").shape.layers[31].attention.window == 4096);
  CHECK(bound("phi-3-mini").shape.layers[0].attention.window == 2047);

  const BoundModel internlm2 = bound("internlm2-7b");
  CHECK(internlm2.shape.layers[0].attention.rope->scaling == RopeScaling::none);
  REQUIRE(internlm2.notes.size() == 1);
  CHECK(internlm2.notes[0].find("beyond 32768 positions") != std::string::npos);
}

// Disk row of element d of a head, from the tables of the architectures: never from an expression.
using RowFormula = Index (*)(Index heads, Index kv, Index dim, char part, Index head, Index d);

Index blocked(Index heads, Index kv, Index dim, char part, Index head, Index d) {
  const Index before = part == 'q' ? 0 : part == 'k' ? heads : heads + kv;
  return (before + head) * dim + d;
}
Index grouped(Index heads, Index kv, Index dim, char part, Index head, Index d) {
  const Index g = heads / kv, group = part == 'q' ? head / g : head;
  const Index place = part == 'q' ? head % g : part == 'k' ? g : g + 1;
  return group * (g + 2) * dim + place * dim + d;
}
Index per_head(Index /*heads*/, Index /*kv*/, Index dim, char part, Index head, Index d) {
  const Index c = part == 'q' ? 0 : part == 'k' ? 1 : 2;
  return head * 3 * dim + c * dim + d;
}

TEST_CASE("model plans: fused tensors have the row order of their architecture") {
  struct Row {
    const char *model, *tensor;
    RowFormula formula;
  };
  const Row row =
      GENERATE(Row{"phi-3-mini", "model.layers.31.self_attn.qkv_proj.weight", blocked},
               Row{"internlm2-7b", "model.layers.0.attention.wqkv.weight", grouped},
               Row{"pythia-6.9b", "gpt_neox.layers.5.attention.query_key_value.weight", per_head},
               Row{"pythia-6.9b", "gpt_neox.layers.5.attention.query_key_value.bias", per_head});
  CAPTURE(row.tensor);
  const BoundModel m = bind_model(find_built_in_model(row.model)->config, row.model);
  const QkvShape& qkv = m.shape.layers[0].attention.qkv;
  const ModelTensor& t = tensor_of(m, row.tensor);
  CHECK(t.shape.rows() == (qkv.heads + 2 * qkv.kv_heads) * qkv.head_dim);
  const std::string leaf = t.name.substr(t.name.rfind('.'));
  CHECK(t.param == t.prefix() + "self_attn.qkv_proj" + leaf);
  REQUIRE(t.bound->parts.size() == 3);
  for (std::size_t k = 0; k < 3; ++k) {
    const char part = "qkv"[k];
    CHECK(t.bound->order[k] == k);
    CHECK(t.bound->parts[k].label == std::string(1, part));
    CHECK(t.logical(k) == t.prefix() + "self_attn." + part + "_proj" + leaf);
    const Runs& rows = t.bound->layout.rows_of(std::string(1, part));
    const Index heads = part == 'q' ? qkv.heads : qkv.kv_heads;
    REQUIRE(rows.size() == heads * qkv.head_dim);
    bool same = true;
    for (Index h = 0; h < heads; ++h)
      for (Index d = 0; d < qkv.head_dim; ++d)
        same = same && rows[h * qkv.head_dim + d] ==
                           row.formula(qkv.heads, qkv.kv_heads, qkv.head_dim, part, h, d);
    CHECK(same);
  }
}

TEST_CASE("model plans: gate lies before up, fused or apart") {
  const BoundModel phi = bind_model(find_built_in_model("phi-3-mini")->config, "phi-3-mini");
  const ModelTensor& fused = tensor_of(phi, "model.layers.0.mlp.gate_up_proj.weight");
  REQUIRE(fused.bound->parts.size() == 2);
  CHECK(fused.logical(0) == "layers.0.mlp.gate_proj.weight");
  CHECK(fused.bound->layout.rows_of("gate")[0] == 0);
  CHECK(fused.bound->layout.rows_of("up")[0] == 8192);
  const BoundModel internlm2 = bind_model(find_built_in_model("internlm2-7b")->config, "internlm2");
  CHECK(tensor_of(internlm2, "model.layers.3.feed_forward.w1.weight").logical(0) ==
        "layers.3.mlp.gate_proj.weight");
  CHECK(tensor_of(internlm2, "model.layers.3.feed_forward.w3.weight").logical(0) ==
        "layers.3.mlp.up_proj.weight");
  CHECK(tensor_of(internlm2, "model.layers.3.feed_forward.w2.weight").logical(0) ==
        "layers.3.mlp.down_proj.weight");
  CHECK(tensor_of(internlm2, "model.layers.3.ffn_norm.weight").logical(0) ==
        "layers.3.post_attention_layernorm.weight");
}

TEST_CASE("model plans: parameters have their parts in the layer's order, whatever the file's") {
  for (const BuiltInModel& each : built_in_models()) {
    CAPTURE(each.name);
    const BoundModel m = bind_model(each.config, each.name);
    std::string qkv, mlp;
    for (const BoundTensor& t : m.kinds[0].plan.tensors)
      for (const std::size_t k : t.order) {
        if (t.param == "self_attn.qkv_proj.weight") qkv += t.parts[k].label;
        if (t.param == "mlp.gate_up_proj.weight") mlp += t.parts[k].label;
      }
    CHECK(qkv == "qkv");
    CHECK(mlp == (m.shape.layers[0].gated ? "gateup" : ""));
  }
}

TEST_CASE("model plans: layers with and without a window are two kinds") {
  const auto config = [](const std::string& more) {
    return bind_model(edited(find_built_in_model("qwen2.5-7b")->config,
                             R"({"num_hidden_layers": 4, "use_sliding_window": true,
                                 "sliding_window": 16)" +
                                 more + "}"),
                      "config.json");
  };
  const auto windows = [](const BoundModel& m) {
    std::string out;
    for (const DecoderShape& layer : m.shape.layers) {
      CHECK(layer.attention.window.value_or(16) == 16);
      out += layer.attention.window ? 'w' : '-';
    }
    return out;
  };
  const BoundModel two = config(R"(, "max_window_layers": 3)");
  CHECK(windows(two) == "---w");
  CHECK(two.kinds.size() == 2);
  CHECK(two.kind_of_layer == std::vector<std::size_t>{0, 0, 0, 1});
  CHECK(windows(config(R"(, "max_window_layers": 0)")) == "wwww");
  CHECK(windows(config(R"(, "max_window_layers": 4)")) == "----");
  CHECK(windows(config(R"(, "layer_types": ["sliding_attention", "full_attention",
                         "full_attention", "sliding_attention"])")) == "w--w");
}

TEST_CASE("model plans: rotary positions in the words of either transformers") {
  const auto rope = [](const std::string& more) {
    const BoundModel m =
        bind_model(edited(find_built_in_model("llama-3-8b")->config, more), "config.json");
    return *m.shape.layers[0].attention.rope;
  };
  const RopeSpec plain = rope("{}");
  CHECK(rope(R"({"rope_theta": null, "rope_parameters":
                 {"rope_type": "default", "rope_theta": 500000.0}})") == plain);
  CHECK(rope(R"({"rope_theta": null})").theta == 10000);
  RopeSpec linear = plain;
  linear.scaling = RopeScaling::linear, linear.factor = 2;
  CHECK(rope(R"({"rope_scaling": {"type": "linear", "factor": 2.0}})") == linear);
  CHECK(rope(R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})") == linear);
  RopeSpec yarn = plain;
  yarn.scaling = RopeScaling::yarn, yarn.factor = 4, yarn.original_positions = 2048;
  CHECK(rope(R"({"rope_scaling": {"type": "yarn", "factor": 4.0,
                 "original_max_position_embeddings": 2048}})") == yarn);
  yarn.original_positions = 8192, yarn.beta_fast = 16, yarn.attention_factor = 1.5;
  CHECK(rope(R"({"rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16,
                 "attention_factor": 1.5}})") == yarn);
}

TEST_CASE("model plans: the architecture that README adds binds, with the names of transformers") {
  const ModelPlan plan = parse_model_plan(readme_plan(), "starcoder2.json");
  REQUIRE(find_plan("starcoder2") == nullptr);
  // Names and shapes as Starcoder2ForCausalLM of transformers 4.57 saves them, hidden 32,
  // intermediate 40, 4 heads, 2 kv heads, vocabulary 67, tied.
  const std::string config = R"({"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh",
      "hidden_size": 32, "intermediate_size": 40, "max_position_embeddings": 64,
      "norm_epsilon": 1e-05, "num_attention_heads": 4, "num_hidden_layers": 1,
      "num_key_value_heads": 2, "rope_theta": 10000.0, "sliding_window": 8, "use_bias": true,
      "vocab_size": 67, "dtype": "float32"})";
  const std::string layer = "model.layers.0.";
  const std::vector<SafetensorsEntry> saved{entry("model.embed_tokens.weight", {67, 32}),
                                            entry(layer + "input_layernorm.bias", {32}),
                                            entry(layer + "input_layernorm.weight", {32}),
                                            entry(layer + "mlp.c_fc.bias", {40}),
                                            entry(layer + "mlp.c_fc.weight", {40, 32}),
                                            entry(layer + "mlp.c_proj.bias", {32}),
                                            entry(layer + "mlp.c_proj.weight", {32, 40}),
                                            entry(layer + "post_attention_layernorm.bias", {32}),
                                            entry(layer + "post_attention_layernorm.weight", {32}),
                                            entry(layer + "self_attn.k_proj.bias", {16}),
                                            entry(layer + "self_attn.k_proj.weight", {16, 32}),
                                            entry(layer + "self_attn.o_proj.bias", {32}),
                                            entry(layer + "self_attn.o_proj.weight", {32, 32}),
                                            entry(layer + "self_attn.q_proj.bias", {32}),
                                            entry(layer + "self_attn.q_proj.weight", {32, 32}),
                                            entry(layer + "self_attn.v_proj.bias", {16}),
                                            entry(layer + "self_attn.v_proj.weight", {16, 32}),
                                            entry("model.norm.bias", {32}),
                                            entry("model.norm.weight", {32})};
  const BoundModel model = bind_model(plan, config, "config.json");
  const CheckResult names = check_names(model, saved);
  CAPTURE(listed(names));
  CHECK(names.result == Outcome::pass);
  CHECK(names.compared == 19);
  const DecoderShape& s = model.shape.layers[0];
  CHECK((model.shape.tied && s.attention.qkv_bias && s.attention.o_bias && s.mlp_bias));
  CHECK((!s.gated && s.activation == Activation::gelu_tanh && s.norm == NormKind::layer));
  CHECK(s.attention.window == 8);
  CHECK(violations(model.kinds[0].plan, 4).empty());
}

}  // namespace
}  // namespace tpsim::test::model_plans_tests
