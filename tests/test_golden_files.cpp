// SPDX-License-Identifier: MIT
// Where a checkpoint keeps its tensors is without meaning: files moved, shuffled or added give the
// same bits. What does not belong to the model is refused, all of it at once.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <functional>

#include <tests/support/golden_model.hpp>

namespace tpsim::test::golden_files_tests {
namespace {

using Json = nlohmann::ordered_json;

/// A tensor with its bytes, whatever it holds.
struct RawTensor {
  SafetensorsEntry entry;
  std::string bytes;
};

std::vector<RawTensor> tensors_of(const std::filesystem::path& folder) {
  std::vector<RawTensor> out;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    if (each.path().extension() != ".safetensors" || each.path().stem() == "golden") continue;
    const SafetensorsFile file(each.path());
    for (const SafetensorsEntry& e : file.header().entries) {
      const auto raw = file.raw(e.name);
      out.push_back({e, {reinterpret_cast<const char*>(raw.data()), raw.size()}});
    }
  }
  return out;
}

std::string file_of(const std::vector<RawTensor>& tensors) {
  Json header = Json::object();
  std::string data;
  for (const RawTensor& t : tensors) {
    header[t.entry.name] = {{"dtype", t.entry.dtype},
                            {"shape", t.entry.dims},
                            {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  return safetensors_bytes(header.dump(), data);
}

void copy_config(const std::filesystem::path& from, const TempDir& to) {
  to.write("config.json", content_of(from / "config.json"));
}

/// Tensor i into file file_for(i) of `files`, with an index.
void write_sharded(const TempDir& folder, const std::vector<RawTensor>& tensors, std::size_t files,
                   const std::function<std::size_t(std::size_t)>& file_for) {
  std::vector<std::vector<RawTensor>> parts(files);
  Json map = Json::object();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parts[file_for(i)].push_back(tensors[i]);
    map[tensors[i].entry.name] = "part-" + std::to_string(file_for(i)) + ".safetensors";
  }
  for (std::size_t k = 0; k < files; ++k)
    folder.write("part-" + std::to_string(k) + ".safetensors", file_of(parts[k]));
  folder.write("model.safetensors.index.json",
               Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
}

template <class T>
void shuffle(std::vector<T>& all, std::uint64_t seed) {
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[mix(seed + i) % i]);
}

/// The parameters and logits of every rank, in bits.
struct Bits {
  std::vector<std::string> names;
  std::vector<std::uint64_t> weights, logits;
  friend bool operator==(const Bits&, const Bits&) = default;
};
Bits bits_of(const GoldenModel& m, int tp) {
  Bits out;
  on_ranks<Single>(m, tp, DType::f32, [&](Communicator& comm, Single&, CausalLM<Single>& net) {
    net.for_each_layer([&](const std::string& prefix, auto& layer) {
      for_each_param(prefix, layer, [&](const std::string& name, const eigen::Param& w) {
        out.names.push_back(std::to_string(comm.rank()) + " " + name);
        CHECK(w.count_poison() == 0);
        for (Index r = 0; r < w.shape.rows(); ++r)
          for (Index c = 0; c < w.shape.cols(); ++c) out.weights.push_back(w.bits(r, c));
      });
    });
    auto caches = net.make_caches();
    const std::vector<Index> ids{3, 0, 14, 7};
    const auto y = net.forward(ids, Batch::prefill({4}), caches, LogitsOf::all_tokens);
    if (!y) return;
    for (Index t = 0; t < y->value.rows(); ++t)
      for (Index c = 0; c < y->value.cols(); ++c)
        out.logits.push_back(std::bit_cast<std::uint32_t>(y->value(t, c)));
  });
  return out;
}

}  // namespace

TEST_CASE("golden files: order and place of the tensors change no bit") {
  for (const std::string name : {"tiny-llama", "tiny-gpt-neox", "tiny-qwen2"}) {
    const std::filesystem::path folder = test_data(name);
    const Bits wanted = bits_of(GoldenModel(folder), 2);
    REQUIRE(!wanted.logits.empty());
    const std::vector<RawTensor> tensors = tensors_of(folder);
    CAPTURE(name);

    SECTION("one file in another order: " + name) {
      for (const std::uint64_t seed : {1, 2}) {
        std::vector<RawTensor> shuffled = tensors;
        shuffle(shuffled, seed);
        const TempDir moved;
        copy_config(folder, moved);
        moved.write("model.safetensors", file_of(shuffled));
        CHECK(bits_of(GoldenModel(moved.path()), 2) == wanted);
      }
    }
    SECTION("tensors moved between files: " + name) {
      std::vector<RawTensor> shuffled = tensors;
      shuffle(shuffled, 3);
      const TempDir moved;
      copy_config(folder, moved);
      write_sharded(moved, shuffled, 3, [](std::size_t i) { return mix(i) % 3; });
      CHECK(bits_of(GoldenModel(moved.path()), 2) == wanted);
    }
    SECTION("a consolidated file with other numbers beside: " + name) {
      std::vector<RawTensor> other = tensors;
      for (RawTensor& t : other) std::fill(t.bytes.begin(), t.bytes.end(), '\x3c');
      const TempDir more;
      copy_config(folder, more);
      write_sharded(more, tensors, 2, [](std::size_t i) { return i % 2; });
      more.write("consolidated.safetensors", file_of(other));
      CHECK(bits_of(GoldenModel(more.path()), 2) == wanted);
      const TempDir single;
      copy_config(folder, single);
      single.write("model.safetensors", file_of(tensors));
      single.write("consolidated.safetensors", file_of(other));
      CHECK(bits_of(GoldenModel(single.path()), 2) == wanted);
    }
    SECTION("another number is another bit: " + name) {
      std::vector<RawTensor> other = tensors;
      other.back().bytes[1] = static_cast<char>(other.back().bytes[1] ^ 1);
      const TempDir changed;
      copy_config(folder, changed);
      changed.write("model.safetensors", file_of(other));
      CHECK(!(bits_of(GoldenModel(changed.path()), 2) == wanted));
    }
  }
}

TEST_CASE("golden files: every tensor that is not the model's is refused at once") {
  std::vector<RawTensor> tensors = tensors_of(test_data("tiny-gpt-neox"));
  const TempDir folder;
  copy_config(test_data("tiny-gpt-neox"), folder);
  for (RawTensor& t : tensors) {
    if (t.entry.name == "embed_out.weight") t.entry.name = "lm_head.weight";
    if (t.entry.name == "gpt_neox.final_layer_norm.weight") t.entry.dims = {12, 4};
    if (t.entry.name == "gpt_neox.final_layer_norm.bias") t.entry.dtype = "I32";
  }
  folder.write("model.safetensors", file_of(tensors));
  CHECK(missing([&] { GoldenModel{folder.path()}; },
                {"are not those of its config.json", "'embed_out.weight' is missing",
                 "'lm_head.weight' [131, 48] is in no rule",
                 "'gpt_neox.final_layer_norm.weight' is [12, 4], wanted [48]",
                 "'gpt_neox.final_layer_norm.bias' is of dtype 'I32'"}) == "");
}

TEST_CASE("golden files: a rank keeps its shard alone and in the type of the model") {
  const GoldenModel m(test_data("tiny-qwen2"));  // stored as bf16
  std::vector<Index> elements;
  on_ranks<Single>(m, 4, DType::bf16, [&](Communicator&, Single&, CausalLM<Single>& net) {
    Index mine = 0;
    net.for_each_layer([&](const std::string& prefix, auto& layer) {
      for_each_param(prefix, layer, [&](const std::string&, const eigen::Param& w) {
        CHECK(std::holds_alternative<eigen::Matrix<std::uint16_t>>(w.storage));
        mine += w.shape.size();
      });
    });
    elements.push_back(mine);
  });
  // Of each layer: q 8 x 4 rows over 4 ranks, one of 2 kv heads on 2 ranks, 40 MLP columns.
  const Index hidden = 32, qkv = 8 + 4 + 4, norms = 2 * hidden, mlp = 3 * 10 * hidden;
  const Index layer = qkv * hidden + qkv + 8 * hidden + norms + mlp;
  const Index rows = 192 / 4;
  CHECK(elements == std::vector<Index>(4, 2 * layer + rows * hidden + hidden));
}

}  // namespace tpsim::test::golden_files_tests
