// SPDX-License-Identifier: MIT
// `tpsim synth`: which tensors a checkpoint has, what their numbers are, and its config.
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include <tpsim/backend/eigen/float16.hpp>
#include <tpsim/checkpoint/checkpoint.hpp>
#include <tpsim/core/random.hpp>

#include <sim/synth_command.hpp>
#include <sim/synth_values.hpp>

#include <tests/support/catch.hpp>
#include <tests/support/test_files.hpp>

namespace tpsim::test::synth_tests {
namespace {

namespace fs = std::filesystem;
using cli::SynthRequest;
using Json = nlohmann::ordered_json;

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::string bytes_of_tensor(const CheckpointTensor& t) {
  std::string out;
  for (Index r = 0; r < t.shape.rows(); ++r) {
    const auto row = t.values->bytes(r, 0);
    out.append(reinterpret_cast<const char*>(row.data()), row.size());
  }
  return out;
}
std::vector<double> numbers(const CheckpointTensor& t) {
  std::vector<double> out(static_cast<std::size_t>(t.shape.size()));
  for (Index r = 0; r < t.shape.rows(); ++r)
    t.values->read(r, 0,
                   std::span(out).subspan(static_cast<std::size_t>(r * t.shape.cols()),
                                          static_cast<std::size_t>(t.shape.cols())));
  return out;
}
std::map<std::string, std::string> all_bytes(const fs::path& folder) {
  const CheckpointFiles files(folder);
  std::map<std::string, std::string> out;
  for (const std::string& name : files.names()) out[name] = bytes_of_tensor(files.tensor(name));
  return out;
}

struct Written {
  TempDir folder;
  cli::SynthResult result;
  explicit Written(SynthRequest request) {
    request.out = folder.path().string();
    result = synth(request);
  }
};
SynthRequest request(const std::string& model, std::map<std::string, Index> sizes = {}) {
  SynthRequest r;
  r.model = model;
  r.sizes = std::move(sizes);
  return r;
}
const std::map<std::string, Index> small{{"layers", 2},   {"hidden", 48},       {"heads", 6},
                                         {"kv-heads", 2}, {"intermediate", 36}, {"vocab", 131}};
std::map<std::string, Index> small_with(const std::string& option, Index value) {
  std::map<std::string, Index> sizes = small;
  sizes[option] = value;
  return sizes;
}

// The definition once more, element by element.
double expected(const ModelTensor& t, DType dtype, std::uint64_t seed, Index row, Index col) {
  const std::uint64_t bits =
      random_bits(row_key(tensor_key(seed, hash_name(t.name)), row), col) >> 40U;
  const double u = (static_cast<double>(bits) - 0x1p23) * 0x1p-23;
  const bool bias = t.name.ends_with("bias"), matrix = t.shape.rank() == 2;
  const auto factor =
      static_cast<float>(std::sqrt(3.0 / static_cast<double>(t.shape.cols())) * 0x1p-23);
  const float value =
      matrix ? static_cast<float>(static_cast<double>(factor) * (u * 0x1p23))
      : bias ? static_cast<float>((u < 0 ? -0.05 : 0.05) + static_cast<double>(0.1F) * u)
             : static_cast<float>(1 + static_cast<double>(0.17320508F) * u);
  return eigen::is_16bit(dtype) ? eigen::from_word(dtype, eigen::to_word(dtype, value)) : value;
}

}  // namespace

TEST_CASE("synth: names, shapes and dtypes are those that transformers writes", "[synth]") {
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(test_data(""))) {
    if (!entry.is_directory()) continue;
    CAPTURE(entry.path());
    const Written ours(request(entry.path().string()));
    const auto facts = [](const fs::path& folder) {
      std::map<std::string, std::pair<std::string, std::vector<Index>>> out;
      for (const SafetensorsEntry& e : CheckpointFiles(folder).entries())
        out[e.name] = {e.dtype, e.dims};
      return out;
    };
    CHECK(facts(ours.folder.path()) == facts(entry.path()));
    // Nothing was asked for, so nothing changes in the config.
    CHECK(read_json(ours.folder.path() / "config.json") == read_json(entry.path() / "config.json"));
    ++checkpoints;
  }
  CHECK(checkpoints >= 13);
}

TEST_CASE("synth: every element is a function of seed, name, row and column", "[synth]") {
  for (const char* model : {"llama-3-8b", "qwen2.5-7b", "pythia-6.9b", "phi-3-mini"})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      CAPTURE(model, name(dtype));
      SynthRequest r = request(model, small);
      if (std::string_view(model) == "pythia-6.9b") r.sizes.erase("kv-heads");
      r.dtype = dtype;
      r.seed = 7;
      r.max_shard_size = 20'000;
      const Written w(r);
      const CheckpointFiles files(w.folder.path());
      std::size_t n = 0;
      for (const ModelTensor& t : w.result.model.bound.tensors) {
        if (t.optional) continue;
        CAPTURE(t.name);
        const CheckpointTensor stored = files.tensor(t.name);
        REQUIRE(stored.shape == t.shape);
        CHECK(stored.dtype == dtype);
        const std::vector<double> values = numbers(stored);
        Index wrong = 0;
        for (Index i = 0; i < t.shape.size(); ++i)
          wrong += values[static_cast<std::size_t>(i)] !=
                   expected(t, dtype, 7, i / t.shape.cols(), i % t.shape.cols());
        CHECK(wrong == 0);
        ++n;
      }
      CHECK(files.names().size() == n);
    }
}

TEST_CASE("synth: pieces of a tensor meet without a seam", "[synth]") {
  // Rows that are longer than a block of generated numbers, and shorter; starts inside of a row.
  for (const Shape shape : {Shape(3, 10'001), Shape(5000, 3), Shape(9000)}) {
    BoundTensor bound;
    bound.rank = shape.rank();
    const ModelTensor t{"t.bias", "t.bias", shape, std::make_shared<BoundTensor>(bound), {}, false};
    const cli::SynthValues values({t}, DType::f32, 3);
    std::vector<float> whole(static_cast<std::size_t>(shape.size())), cut(whole);
    values.fill(0, 0, std::as_writable_bytes(std::span(whole)));
    for (Index at = 0, n = 1; at < shape.size(); at += n, n = n * 3 + 1) {
      n = std::min(n, shape.size() - at);
      values.fill(0, at,
                  std::as_writable_bytes(std::span(cut).subspan(static_cast<std::size_t>(at),
                                                                static_cast<std::size_t>(n))));
    }
    CHECK((whole == cut));
    for (const Index i : {Index{0}, shape.size() / 2, shape.size() - 1})
      CHECK(static_cast<double>(whole[static_cast<std::size_t>(i)]) ==
            expected(t, DType::f32, 3, i / shape.cols(), i % shape.cols()));
  }
}

TEST_CASE("synth: numbers are spread as an initialisation is", "[synth]") {
  SynthRequest r = request("qwen2.5-7b", {{"layers", 1},
                                          {"hidden", 256},
                                          {"heads", 8},
                                          {"kv-heads", 4},
                                          {"intermediate", 640},
                                          {"vocab", 900}});
  r.dtype = DType::bf16;
  const Written w(r);
  const CheckpointFiles files(w.folder.path());
  for (const std::string& name : files.names()) {
    CAPTURE(name);
    const CheckpointTensor t = files.tensor(name);
    double sum = 0, squares = 0, least = 1e9;
    std::set<double> distinct;
    for (const double x : numbers(t)) {
      sum += x, squares += x * x, least = std::min(least, std::abs(x));
      distinct.insert(x);
    }
    const auto n = static_cast<double>(t.shape.size());
    const double mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
    CHECK(distinct.size() > 40);
    if (t.shape.rank() == 2) {
      const double wanted = 1 / std::sqrt(static_cast<double>(t.shape.cols()));
      CHECK(std::abs(deviation / wanted - 1) < 0.02);
      CHECK(std::abs(mean) < 5 * wanted / std::sqrt(n));
    } else if (name.ends_with("bias")) {
      CHECK(least >= 0.0498);
      CHECK(std::abs(mean) < 0.5 / std::sqrt(n));
    } else {
      CHECK(std::abs(mean - 1) < 0.5 / std::sqrt(n));
      CHECK(std::abs(deviation - 0.1) < 0.02);
    }
  }
}

TEST_CASE("synth: the bytes follow from the seed, not from the files", "[synth]") {
  SynthRequest r = request("qwen3-8b", small_with("head-dim", 16));
  const Written one(r);
  r.max_shard_size = 5'000;
  const Written many(r);
  CHECK(one.result.files.size() == 2);
  CHECK(many.result.files.size() > 8);
  const auto first = all_bytes(one.folder.path());
  CHECK((first == all_bytes(many.folder.path())));
  r.seed = 2;
  const auto other = all_bytes(Written(r).folder.path());
  for (const auto& [name, bytes] : first) {
    CAPTURE(name);
    CHECK((other.at(name) != bytes));
  }
  // No tensor of a size repeats another.
  std::set<std::string> distinct;
  for (const auto& [name, bytes] : first) distinct.insert(bytes);
  CHECK(distinct.size() == first.size());
}

TEST_CASE("synth: the head of a tied model is left out", "[synth]") {
  std::map<std::string, Index> sizes = small;
  const Written w(request("qwen3-0.6b", sizes));
  const CheckpointFiles files(w.folder.path());
  CHECK(files.has("model.embed_tokens.weight"));
  CHECK_FALSE(files.has("lm_head.weight"));
  CHECK(w.result.tensors == 2 * 11 + 2);
}

TEST_CASE("synth: sizes that are asked for are in the config, and others follow", "[synth]") {
  const auto config = [](const std::string& model, std::map<std::string, Index> sizes) {
    return Json::parse(cli::synth_model(request(model, std::move(sizes))).config);
  };
  const Json llama = config("llama-3-8b", small_with("head-dim", 20));
  CHECK(llama["num_hidden_layers"] == 2);
  CHECK(llama["hidden_size"] == 48);
  CHECK(llama["num_attention_heads"] == 6);
  CHECK(llama["num_key_value_heads"] == 2);
  CHECK(llama["head_dim"] == 20);
  CHECK(llama["intermediate_size"] == 36);
  CHECK(llama["vocab_size"] == 131);
  CHECK(llama["rope_theta"] == 500000.0);
  CHECK(llama["torch_dtype"] == "bfloat16");
  CHECK_FALSE(llama.contains("dtype"));

  CHECK(config("phi-3-mini", {{"heads", 6}, {"hidden", 96}})["num_key_value_heads"] == 6);
  CHECK(config("llama-3-8b", {{"heads", 4}})["num_key_value_heads"] == 4);
  CHECK(config("llama-3-8b", {{"heads", 16}})["num_key_value_heads"] == 8);
  CHECK(config("phi-3-mini", {{"vocab", 99}})["pad_token_id"] == nullptr);
  CHECK(config("pythia-6.9b", {{"heads", 16}})["num_attention_heads"] == 16);
  CHECK_FALSE(config("pythia-6.9b", {{"heads", 16}}).contains("num_key_value_heads"));
}

TEST_CASE("synth: other keys of a config are kept", "[synth]") {
  const TempDir folder;
  Json source = Json::parse(small_config);
  source["model_type"] = "qwen3";
  source["head_dim"] = 6;
  source["dtype"] = "float16";
  source["torch_dtype"] = "float16";
  source["layer_types"] = Json::array();
  for (int i = 0; i < 11; ++i)
    source["layer_types"].push_back(i % 3 == 2 ? "full_attention" : "sliding_attention");
  source["max_position_embeddings"] = 64;
  source["rms_norm_eps"] = 1e-6;
  source["hidden_act"] = "silu";
  source["sliding_window"] = 4;
  source["use_sliding_window"] = true;
  source["mine"] = {{"deep", {1, 2.5, "x"}}};
  source["bos_token_id"] = 1;
  source["eos_token_id"] = {2, 7};
  source["pad_token_id"] = 7;
  const std::string path = folder.write("config.json", source.dump());
  SynthRequest r = request(path, {{"layers", 13}, {"vocab", 7}});
  r.dtype = DType::f32;
  const cli::SynthModel model = cli::synth_model(r);
  Json wanted = source;
  wanted["num_hidden_layers"] = 13;
  wanted["vocab_size"] = 7;
  wanted["dtype"] = wanted["torch_dtype"] = "float32";
  wanted["layer_types"].push_back("sliding_attention");
  wanted["layer_types"].push_back("sliding_attention");
  wanted["eos_token_id"] = wanted["pad_token_id"] = nullptr;
  CHECK(Json::parse(model.config) == wanted);  // ordered: places too
  CHECK(model.notes.size() == 2);
  CHECK(model.bound.kind_of_layer.size() == 13);
  r.sizes = {{"layers", 2}};
  CHECK(Json::parse(cli::synth_model(r).config)["layer_types"] ==
        Json{"sliding_attention", "sliding_attention"});
}

TEST_CASE("synth: a config without a dtype gets one", "[synth]") {
  const TempDir folder;
  Json source = read_json(test_data("tiny-qwen2") / "config.json");
  source.erase("dtype"), source.erase("torch_dtype");
  const std::string path = folder.write("config.json", source.dump());
  const cli::SynthModel model = cli::synth_model(request(path));
  CHECK(model.dtype == DType::bf16);
  CHECK(Json::parse(model.config)["torch_dtype"] == "bfloat16");
  CHECK(model.notes == std::vector<std::string>{"the config gives no dtype; the weights are bf16"});
}

}  // namespace tpsim::test::synth_tests
